// SPDX-License-Identifier: Apache-2.0
// A fleet of many nodes of eight cards, at work on runs of 64 experts.
#pragma once

#include "base/text.h"
#include "dashboard/fleet_state.h"

namespace skerry::dashboard {

inline FleetState large_fleet(int nodes) {
  FleetState state;
  state.unix_ms = 1'800'000'000'000;
  for (int i = 0; i < nodes; ++i) {
    pb::NodeInfo& node = state.nodes.emplace_back();
    node.set_id(text("a-node-with-an-identity-of-its-own-", i));
    node.set_name(text("rented-gpu-host-", i));
    node.set_state("training");
    for (std::uint32_t card = 0; card < 8; ++card) {
      pb::Slot& slot = *node.add_slots();
      slot.set_index(card);
      slot.set_device("NVIDIA H100 80GB HBM3");
    }
  }
  for (int i = 0; i < (nodes + 63) / 64; ++i) {
    RunState& run = state.runs[text("id-", i)];
    run.info.set_id(text("id-", i));
    run.info.set_name(text("a-run-with-a-long-name-", i));
    run.info.set_state("running");
    run.info.set_goodput(0.98765);
    run.info.set_dollars(12345.678);
    for (std::uint32_t index = 0; index < 64; ++index) {
      pb::ExpertInfo& expert = *run.info.add_experts();
      expert.set_index(index);
      expert.set_step(123'456);
      expert.set_loss(0.0123456789);
      expert.set_gradient_norm(1.23456789);
      expert.set_checkpoint("a hash");
      expert.set_committed_unix_ms(state.unix_ms - 61'234);
      expert.set_copies(2);
      pb::HistoryPoint point;
      point.set_number(1'234);
      run.track.add(index, point);
    }
  }
  return state;
}

}  // namespace skerry::dashboard
