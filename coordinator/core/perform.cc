// SPDX-License-Identifier: Apache-2.0
#include "coordinator/core/perform.h"

#include <algorithm>
#include <utility>

namespace skerry::coordinator {

void Performer::perform(Effects effects, std::uint64_t durable) {
  if (effects.batch.number != 0) sink_->write(std::move(effects.batch));
  for (Send& message : effects.sends) {
    if (message.after_batch == 0) {
      sink_->send(std::move(message));
    } else {
      waiting_.push_back(std::move(message));
    }
  }
  if (!effects.roster.empty()) sink_->change_roster(effects.roster);
  for (const Hash& object : effects.cancel_fetches) sink_->cancel(object);
  for (const Fetch& order : effects.fetches) sink_->fetch(order);
  for (const Drop& order : effects.drops) sink_->drop(order);
  for (const Hash& object : effects.verifies) sink_->verify(object);
  while (!waiting_.empty() && waiting_.front().after_batch <= durable) {
    sink_->send(std::move(waiting_.front()));
    waiting_.pop_front();
  }
  for (const ConnectionId& connection : effects.disconnects) sink_->disconnect(connection);
  for (const Hash& object : effects.reads) sink_->read(object);
  for (const RunId& run : effects.seeks) sink_->seek(run);
  sink_->wake_at(effects.next);
}

bool Performer::is_to_answer(const ConnectionId& connection, std::uint64_t request) const {
  return std::ranges::any_of(waiting_, [&](const Send& send) {
    const auto* const reply = std::get_if<pb::ControlReply>(&send.message);
    return reply != nullptr && reply->id() == request && send.connection == connection;
  });
}

}  // namespace skerry::coordinator
