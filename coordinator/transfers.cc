// What nodes fetched, as events: one for each object, a bounded number a minute for each node.
#include "base/text.h"
#include "coordinator/keys.h"
#include "coordinator/machine.h"

namespace skerry::coordinator {
namespace {

constexpr std::uint64_t kToldEachMinute = 20;

}  // namespace

void Machine::transferred(const Node& node, const pb::Transfer& transfer) {
  const Hash manifest = *Hash::from_raw(transfer.manifest());
  const auto name_of_peer = [&](const std::string& peer) -> std::string {
    const auto found = nodes.find(peer);
    return found == nodes.end() ? "the coordinator" : found->second.record.name();
  };
  const Expert* expert = nullptr;
  std::uint64_t step = 0;
  std::string what = text("object ", manifest.short_hex());
  for (const auto& [id, run] : runs) {
    for (const Expert& each : run.experts) {
      for (const stored::Checkpoint& checkpoint : each.record.checkpoints()) {
        if (checkpoint.manifest() != transfer.manifest()) continue;
        expert = &each;
        step = checkpoint.step();
        what = "its checkpoint";
      }
    }
  }
  for (const auto& [name, dataset] : datasets) {
    if (expert != nullptr) break;
    for (const pb::DatasetFile& file : dataset.record.content().files()) {
      if (file.object().manifest() == transfer.manifest())
        what = text(file.object().name(), " of dataset ", name);
    }
  }
  const std::chrono::milliseconds took(std::max<std::uint64_t>(transfer.millis(), 1));
  const auto rate = static_cast<std::uint64_t>(static_cast<double>(transfer.bytes()) /
                                               std::chrono::duration<double>(took).count());
  std::string from;
  for (const pb::TransferSource& source : transfer.sources()) {
    from += text(from.empty() ? " from " : ", ", name_of_peer(source.peer()));
    if (transfer.sources_size() > 1 && transfer.bytes() > 0)
      from += text(" (", source.bytes() * 100 / std::max(transfer.bytes(), source.bytes()), " %)");
  }
  const std::string reason = text("fetched ", what, ": ", human_bytes(transfer.bytes()), " in ",
                                  human_duration(took), ", ", human_bytes(rate), "/s", from);
  if (is_to_be_told(transfers, {node.record.id(), ""}, kToldEachMinute, reason, node.record.name()))
    tell(kTransfer, reason, node.record.name(), expert, step);
}

}  // namespace skerry::coordinator
