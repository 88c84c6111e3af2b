// SPDX-License-Identifier: Apache-2.0
#include "daemon/core/session.h"

#include <utility>

namespace skerry::daemon {

void Session::opened() {
  closed();
  phase_ = Phase::kHello;
  hello_at_ = {};
}

void Session::closed() {
  phase_ = Phase::kClosed;
  hello_id_ = 0;
  heartbeats_.clear();
  assignment_id_.reset();
  for (Post& post : outbox_) post.id = 0;
}

bool Session::hello_due(Context& context) {
  return (phase_ == Phase::kHello || phase_ == Phase::kRefused) && context.due(hello_at_);
}

void Session::hello_sent(std::uint64_t id, Context& context) {
  phase_ = Phase::kHello;
  hello_id_ = id;
  hello_at_ = context.now.boot + kHelloRetry;
  context.wake(hello_at_);
}

void Session::accepted(const pb::HelloReply& reply, Context& context) {
  phase_ = Phase::kOpen;
  if (reply.heartbeat_ms() > 0) heartbeat_every_ = milliseconds(reply.heartbeat_ms());
  if (reply.lease_ms() > 0) lease_ = milliseconds(reply.lease_ms());
  heartbeats_.clear();
  answered_sequence_ = sequence_;
  next_heartbeat_ = {};
  heard_ = context.now.boot;
  desired_ = reply.assignment_version();
  applied_ = 0;
  asked_on_connection_ = false;
  assignment_id_.reset();
}

void Session::refuse(Context& context) {
  phase_ = Phase::kRefused;
  hello_at_ = context.now.boot + kRefusedRetry;
  context.wake(hello_at_);
}

void Session::greet_again(Context& context, Duration wait) {
  closed();
  phase_ = Phase::kHello;
  hello_at_ = context.now.boot + wait;
  context.wake(hello_at_);
}

bool Session::heartbeat_due(Context& context) {
  if (!is_open()) return false;
  if (context.due(heard_ + kSilenceLimit)) {
    greet_again(context, {});
    return false;
  }
  return context.due(next_heartbeat_);
}

pb::ControlRequest Session::heartbeat(Context& context) {
  pb::ControlRequest request;
  request.set_id(next_id());
  auto& heartbeat = *request.mutable_heartbeat();
  heartbeat.set_incarnation(incarnation_);
  heartbeat.set_sequence(++sequence_);
  heartbeat.set_assignment_version(applied_);
  heartbeats_[request.id()] = context.now.boot;
  while (heartbeats_.size() > kHeartbeatsOpen) heartbeats_.erase(heartbeats_.begin());
  next_heartbeat_ = context.now.boot + heartbeat_every_;
  context.wake(next_heartbeat_);
  return request;
}

std::optional<Duration> Session::heartbeat_answered(std::uint64_t id,
                                                    const pb::HeartbeatReply& reply,
                                                    Context& context) {
  const auto sent = heartbeats_.find(id);
  if (sent == heartbeats_.end()) return std::nullopt;
  const Duration since = sent->second;
  const Duration until = since + lease_ - lease_ / kLeaseSlackPart;
  heartbeats_.erase(sent);
  heard_ = context.now.boot;
  if (reply.sequence() > answered_sequence_) {
    answered_sequence_ = reply.sequence();
    desired_ = reply.assignment_version();
  }
  return until;
}

bool Session::assignment_due(Context& context) {
  if (!is_open() || (asked_on_connection_ && applied_ == desired_)) return false;
  return !assignment_id_ || context.due(assignment_retry_);
}

void Session::assignment_sent(std::uint64_t id, Context& context) {
  assignment_id_ = id;
  assignment_retry_ = context.now.boot + kAssignmentRetry;
  context.wake(assignment_retry_);
}

bool Session::assignment_answered(std::uint64_t version) {
  assignment_id_.reset();
  if (asked_on_connection_ && version < applied_) return false;
  asked_on_connection_ = true;
  applied_ = version;
  // An answer may be ahead of the last heartbeat's word; an older word does not
  // call it back.
  desired_ = std::max(desired_, version);
  return true;
}

void Session::post(pb::ControlRequest request) {
  if (outbox_.size() >= kOutboxItems) {
    const auto report = std::find_if(outbox_.begin(), outbox_.end(), [](const Post& post) {
      return post.request.has_engine_report();
    });
    outbox_.erase(report == outbox_.end() ? outbox_.begin() : report);
  }
  outbox_.push_back({std::move(request), 0, {}});
}

void Session::send_posts(Context& context) {
  if (!is_open()) return;
  for (Post& post : outbox_) {
    if (post.id != 0 && !context.due(post.retry_at)) continue;
    post.id = next_id();
    post.retry_at = context.now.boot + kOutboxRetry;
    post.request.set_id(post.id);
    context.out.sends.push_back(post.request);
    context.wake(post.retry_at);
  }
}

void Session::answered_post(std::uint64_t id, bool retry, Context& context) {
  const auto at = std::find_if(outbox_.begin(), outbox_.end(),
                               [&](const Post& post) { return post.id == id && id != 0; });
  if (at == outbox_.end()) return;
  if (retry && ++at->errors < kOutboxErrors) {
    context.wake(at->retry_at);
  } else {
    outbox_.erase(at);
  }
}

}  // namespace skerry::daemon
