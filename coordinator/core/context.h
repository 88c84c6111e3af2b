// SPDX-License-Identifier: Apache-2.0
// What every room works with: the bounds, the time, the coordinator's own
// record, and the effects of the step under way.
//
// Invariant: between two steps `effects` is what the last one returned, and the
// journal lists nothing.
#pragma once

#include <cstdint>
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
  std::uint64_t batch = 0;  // the last number that was given out
  std::uint64_t persisted = 0;
  bool must_reschedule = true;  // the schedule must be looked at again

  // Of a restore: nobody is answered before nodes gave back what was revoked.
  bool recalls() const { return meta->recalls_revocations(); }
  // The first generation of epochs that no node is believed to have seen. It
  // is bounded, so that no node can use the generations up.
  std::uint64_t generations_end() const;
  std::string random_hex(std::size_t bytes);

  void reply(const ConnectionId& to, pb::ControlReply message);
  void reply_at_once(const ConnectionId& to, pb::ControlReply message);
  void reply_error(const ConnectionId& to, std::uint64_t request, const Error& error);
  void acknowledge(const ConnectionId& to, std::uint64_t request);
  // Ends the step: numbers its batch, and lets each answer wait for it.
  void number_batch();

 private:
  std::vector<std::size_t> sends_at_once_;
};

// The base of every room.
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
