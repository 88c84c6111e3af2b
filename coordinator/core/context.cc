// SPDX-License-Identifier: Apache-2.0
#include "coordinator/core/context.h"

#include <algorithm>

#include "base/text.h"
#include "protocol/limits.h"

namespace skerry::coordinator {

std::uint64_t Context::generations_end() const {
  return std::min<std::uint64_t>(
      std::max<std::uint32_t>(meta->restored_generation(), 1) + config.generation_leap,
      protocol::kGenerations);
}

std::string Context::random_hex(std::size_t bytes) {
  std::string drawn(bytes, '\0');
  rng.fill({reinterpret_cast<unsigned char*>(drawn.data()), drawn.size()});
  return to_hex(drawn);
}

void Context::reply(const ConnectionId& to, pb::ControlReply message) {
  effects.sends.push_back({to, Endpoint::kControl, std::move(message), 0});
}

void Context::send_at_once() { sends_at_once_.push_back(effects.sends.size() - 1); }

void Context::reply_error(const ConnectionId& to, std::uint64_t request, const Error& error) {
  pb::ControlReply message;
  message.set_id(request);
  message.mutable_error()->set_code(to_string(error.code));
  message.mutable_error()->set_message(error.message);
  reply(to, std::move(message));
}

void Context::acknowledge(const ConnectionId& to, std::uint64_t request) {
  pb::ControlReply message;
  message.set_id(request);
  message.mutable_ack();
  reply(to, std::move(message));
}

void Context::number_batch() {
  effects.batch.writes = journal.take();
  if (!effects.batch.writes.empty()) effects.batch.number = ++batch;
  for (Send& send : effects.sends) send.after_batch = batch;
  for (const std::size_t index : sends_at_once_) effects.sends[index].after_batch = 0;
  sends_at_once_.clear();
}

}  // namespace skerry::coordinator
