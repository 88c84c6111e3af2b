// SPDX-License-Identifier: Apache-2.0
#include "cli/view/node_view.h"

#include <algorithm>

#include "cli/shell/words.h"

namespace skerry::cli {
namespace {

Json slot_json(const pb::NodeInfo& node, const pb::Slot& slot) {
  const pb::SlotStatus* status = status_of(node, slot.index());
  Json out = {{"index", slot.index()},
              {"device", printable(slot.device())},
              {"memory_bytes", slot.memory_bytes()},
              {"phase", nullptr},
              {"run", nullptr},
              {"run_name", nullptr},
              {"expert", nullptr},
              {"epoch", nullptr},
              {"step", nullptr},
              {"loss", nullptr},
              {"samples_per_second", nullptr}};
  if (status == nullptr) return out;
  out["phase"] = phase_name(status->phase());
  if (status->run().empty()) return out;
  out["run"] = status->run();
  out["run_name"] = printable(run_name(node, *status));
  out["expert"] = status->expert();
  out["epoch"] = status->epoch();
  out["step"] = status->step();
  if (status->phase() == pb::SLOT_TRAINING || status->phase() == pb::SLOT_COMMITTING) {
    out["loss"] = status->loss();
    out["samples_per_second"] = status->samples_per_second();
  }
  return out;
}

}  // namespace

const pb::SlotStatus* status_of(const pb::NodeInfo& node, std::uint32_t slot) {
  const auto found =
      std::find_if(node.status().begin(), node.status().end(),
                   [slot](const pb::SlotStatus& status) { return status.slot() == slot; });
  return found == node.status().end() ? nullptr : &*found;
}

// What people call a run; its id where the coordinator does not know it any
// more.
std::string run_name(const pb::NodeInfo& node, const pb::SlotStatus& status) {
  const auto found = node.run_names().find(status.run());
  return found == node.run_names().end() ? status.run() : found->second;
}

const pb::SlotStatus* first_busy(const pb::NodeInfo& node) {
  for (const pb::SlotStatus& status : node.status()) {
    if (!status.run().empty()) return &status;
  }
  return nullptr;
}

Json node_json(const pb::NodeInfo& node) {
  Json slots = Json::array();
  for (const pb::Slot& slot : node.slots()) slots.push_back(slot_json(node, slot));
  const pb::SlotStatus* busy = first_busy(node);
  return {{"id", node.id()},
          {"name", text_or_null(node.name())},
          {"state", node.state()},
          {"role", role_name(node.role())},
          {"slots", std::move(slots)},
          {"run", busy == nullptr ? Json() : Json(busy->run())},
          {"run_name", busy == nullptr ? Json() : Json(printable(run_name(node, *busy)))},
          {"expert", busy == nullptr ? Json() : Json(busy->expert())},
          {"last_seen", time_or_null(node.last_seen_unix_ms())},
          {"joined_at", time_or_null(node.joined_unix_ms())},
          {"address", text_or_null(node.address())},
          {"software", text_or_null(node.software())},
          {"speed", node.speed() > 0 ? Json(node.speed()) : Json()},
          {"speed_from", text_or_null(node.speed_from())},
          {"price", node.price() > 0 ? Json(node.price()) : Json()},
          {"host_label", text_or_null(node.host_label())},
          {"leaves_in_seconds",
           node.has_leaves_in_seconds() ? Json(node.leaves_in_seconds()) : Json()}};
}

}  // namespace skerry::cli
