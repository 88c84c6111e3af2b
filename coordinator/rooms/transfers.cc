// SPDX-License-Identifier: Apache-2.0
// What nodes fetched, and from whom they could not, as events: a bounded number
// a minute for each node.
#include "base/text.h"
#include "coordinator/core/machine.h"

namespace skerry::coordinator {
namespace {

// An object as people know it, and the expert whose checkpoint it is.
struct Known {
  std::string what;
  const Expert* expert = nullptr;
  std::uint64_t step = 0;
};

std::string name_of_peer(const Rooms& rooms, const std::string& peer) {
  const Node* found = rooms.roster.find(NodeId(peer));
  return found == nullptr ? "the coordinator" : found->record->name();
}

Known known_object(const Rooms& rooms, const std::string& manifest) {
  Known known{text("object ", Hash::from_raw(manifest)->short_hex())};
  rooms.runs.visit_checkpoints(
      [&](const Run&, const Expert& each, const stored::Checkpoint& checkpoint) {
        if (checkpoint.manifest() == manifest) known = {"its checkpoint", &each, checkpoint.step()};
      });
  rooms.datasets.visit_files([&](const DatasetName& name, const pb::DatasetFile& file) {
    if (known.expert == nullptr && file.object().manifest() == manifest)
      known.what = text(file.object().name(), " of dataset ", name);
  });
  return known;
}

}  // namespace

void Machine::transferred(const Node& node, const pb::Transfer& transfer) {
  const Known known = known_object(*this, transfer.manifest());
  const std::chrono::milliseconds took(std::max<std::uint64_t>(transfer.millis(), 1));
  const auto rate = static_cast<std::uint64_t>(static_cast<double>(transfer.bytes()) /
                                               std::chrono::duration<double>(took).count());
  std::string from;
  for (const pb::TransferSource& source : transfer.sources()) {
    from += text(from.empty() ? " from " : ", ", name_of_peer(*this, source.peer()));
    if (transfer.sources_size() > 1 && transfer.bytes() > 0)
      from += text(" (", source.bytes() * 100 / std::max(transfer.bytes(), source.bytes()), " %)");
  }
  const std::string reason =
      text("fetched ", known.what, ": ", human_bytes(transfer.bytes()), " in ",
           human_duration(took), ", ", human_bytes(rate), "/s", from);
  events.tell(EventKind::kTransfer, reason, node.record->name(), known.expert, known.step);
}

void Machine::peer_faulted(const Node& node, const pb::PeerFault& fault) {
  const Known known = known_object(*this, fault.manifest());
  const bool lied = fault.kind() == pb::PeerFault::FAULT_WRONG_BYTES;
  const std::string reason = text(
      "fetches ", known.what, ": ", name_of_peer(*this, fault.peer()),
      lied ? " sent wrong bytes and is asked no more" : " did not answer and is asked again later");
  events.tell(EventKind::kPeerFault, reason, node.record->name(), known.expert, known.step);
}

}  // namespace skerry::coordinator
