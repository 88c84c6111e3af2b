// SPDX-License-Identifier: Apache-2.0
// The state that all rooms share during a step: limits, time, the coordinator's
// own record, and the effects of the current step.
//
// Invariant: between two steps `effects` holds what the last step returned, and
// the journal is empty.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "coordinator/core/core.h"
#include "coordinator/core/table.h"

namespace skerry::coordinator {

struct Context {
  Context(const Config& the_config, Rng& the_rng, const Authority& the_authority)
      : config(the_config), rng(the_rng), authority(the_authority) {
    meta.list_in(meta_changes);
  }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  const Config& config;
  Rng& rng;
  const Authority& authority;

  Journal journal;
  Tracked<stored::Meta> meta;
  Changes<std::string> meta_changes{journal, Kind::kMeta, [this](const auto&) { return &*meta; }};

  Now now;
  Effects effects;
  std::uint64_t batch = 0;  // the last batch number used
  std::uint64_t persisted = 0;
  bool lacks_room = false;      // the disk takes no batch that makes no room
  bool must_reschedule = true;  // the scheduler must run again
  // Nodes whose connection, price, slots or leases changed in this step.
  std::set<NodeId> remetered;

  // True after a restore, until nodes have returned the revocations they hold.
  // Requests are refused meanwhile.
  bool recalls() const { return meta->recalls_revocations(); }
  // The lowest epoch generation that the coordinator refuses to believe a node
  // has seen. Bounded, so that a node cannot exhaust the generations.
  std::uint64_t generations_end() const;
  std::string random_hex(std::size_t bytes);

  void reply(const ConnectionId& to, pb::ControlReply message);
  // The last send of this step so far waits for no batch. REQUIRES: it
  // acknowledges nothing.
  void send_at_once();
  void reply_error(const ConnectionId& to, std::uint64_t request, const Error& error);
  void acknowledge(const ConnectionId& to, std::uint64_t request);
  // Ends the step: numbers its batch and makes each reply wait for that batch.
  void number_batch();

 private:
  std::vector<std::size_t> sends_at_once_;
};

// Base class of all rooms.
class Room {
 protected:
  explicit Room(Context& the_context)
      : context(the_context), config(context.config), now(context.now), effects(context.effects) {}

  // LIFETIME: the context outlives its rooms.
  Context& context;
  const Config& config;
  const Now& now;
  Effects& effects;
};

}  // namespace skerry::coordinator
