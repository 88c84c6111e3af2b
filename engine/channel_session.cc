// SPDX-License-Identifier: Apache-2.0
#include "engine/channel_session.h"

#include "base/log.h"
#include "protocol/validate_engine.h"

namespace skerry::engine {
namespace {

constexpr Duration kForever{-1};
constexpr Duration kFlushLimit = std::chrono::seconds(10);

}  // namespace

void ChannelSession::take(protocol::Channel::Frame frame, pb::EngineRequest request) {
  switch (request.body_case()) {
    case pb::EngineRequest::kStart:
      plan_ = request.start().plan();
      start_ = std::move(*request.mutable_start());
      checkpoint_ = std::move(frame.descriptor);
      break;
    case pb::EngineRequest::kPlan:
      plan_ = request.plan();
      break;
    case pb::EngineRequest::kSnapshotDone:
      released_ = true;
      break;
    case pb::EngineRequest::kStop:
      stop_ = request.stop();
      break;
    case pb::EngineRequest::BODY_NOT_SET:
      break;  // a request of a newer daemon
  }
}

bool ChannelSession::read(bool wait) {
  if (wait && !channel_.wait_readable(kForever)) return false;
  auto frames = channel_.receive();
  if (!frames) return false;
  for (protocol::Channel::Frame& frame : *frames) {
    auto request = protocol::parse_engine_request(frame.bytes);
    if (!request) {
      log_error("the daemon sent a request that cannot be", {{"reason", request.error().message}});
      return false;
    }
    take(std::move(frame), std::move(*request));
  }
  return true;
}

bool ChannelSession::send(const pb::EngineEvent& event, int descriptor) {
  const Result<void> sent = channel_.send(event, descriptor);
  // If a daemon reads so slowly that the queue fills up, it misses progress and
  // nothing else. At most one snapshot waits, and every other event is sent
  // once.
  return sent || sent.error().code == ErrorCode::kExhausted;
}

void ChannelSession::flush() { (void)channel_.flush_all(kFlushLimit); }

}  // namespace skerry::engine
