// SPDX-License-Identifier: Apache-2.0
// The daemon's session with the coordinator: Hello, heartbeats, the desired
// assignment version, and requests that are retried until they get a reply.
// Part of the core.
//
// A reply counts only if its request is still open. Every request has a unique
// id; a retry or a new connection invalidates the old ids. So late, duplicated
// and foreign replies are ignored.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <string>

#include "daemon/core/context.h"
#include "daemon/core/event.h"

namespace skerry::daemon {

inline constexpr Duration kHelloRetry = seconds(2);
// The coordinator was restored from a backup that is too old for this node.
inline constexpr Duration kRefusedRetry = seconds(5);
inline constexpr Duration kAssignmentRetry = seconds(2);
inline constexpr Duration kOutboxRetry = seconds(2);
inline constexpr Duration kSilenceLimit = seconds(5);  // no heartbeat reply: send Hello again
inline constexpr std::size_t kHeartbeatsOpen = 16;
inline constexpr std::size_t kOutboxItems = 64;
inline constexpr int kOutboxErrors = 5;
inline constexpr int kLeaseSlackPart = 20;  // ε = 1/20 of the time-to-live

class Session {
 public:
  explicit Session(std::uint64_t incarnation) : incarnation_(incarnation) {}

  enum class Phase {
    kClosed,   // waits for the transport
    kHello,    // Hello was sent or is due; waits for HelloReply, retries after kHelloRetry
    kRefused,  // generation lower than seen: waits kRefusedRetry, then Hello
    kOpen,     // HelloReply arrived; heartbeats run
  };

  void opened();
  void closed();
  Phase phase() const { return phase_; }
  bool is_open() const { return phase_ == Phase::kOpen; }

  std::uint64_t next_id() { return ++last_id_; }

  // ---- Hello ----
  bool hello_due(Context& context);
  void hello_sent(std::uint64_t id, Context& context);
  bool is_hello(std::uint64_t id) const { return phase_ == Phase::kHello && id == hello_id_; }
  void accepted(const pb::HelloReply& reply, Context& context);
  void refuse(Context& context);
  // The coordinator does not know this connection: sends Hello after `wait`.
  void greet_again(Context& context, Duration wait);

  // ---- Heartbeats ----
  bool heartbeat_due(Context& context);
  void heartbeat_soon() { next_heartbeat_ = {}; }
  // Fills in incarnation, sequence and version. The caller fills in `slots` and
  // `draining`.
  pb::ControlRequest heartbeat(Context& context);
  // RETURNS: until when the leases that this reply renews are valid; nothing if
  // no open heartbeat has this id.
  std::optional<Duration> heartbeat_answered(std::uint64_t id, const pb::HeartbeatReply& reply,
                                             Context& context);
  bool is_heartbeat(std::uint64_t id) const { return heartbeats_.contains(id); }

  // ---- Desired version ----
  bool assignment_due(Context& context);
  void assignment_sent(std::uint64_t id, Context& context);
  bool is_assignment(std::uint64_t id) const { return assignment_id_ && id == *assignment_id_; }
  // RETURNS: false if `version` is older than the one applied on this
  // connection.
  bool assignment_answered(std::uint64_t version);
  std::uint64_t applied_version() const { return applied_; }

  // ---- Outbox: requests retried until acknowledged ----
  void post(pb::ControlRequest request);  // drops the oldest report when full
  void send_posts(Context& context);
  // `retry`: a temporary error. After kOutboxErrors of them the post is
  // dropped.
  void answered_post(std::uint64_t id, bool retry, Context& context);
  bool has_posts() const { return !outbox_.empty(); }

 private:
  struct Post {
    pb::ControlRequest request;
    std::uint64_t id = 0;
    Duration retry_at{};
    int errors = 0;
  };

  std::uint64_t incarnation_;
  Phase phase_ = Phase::kClosed;
  std::uint64_t last_id_ = 0;
  std::uint64_t hello_id_ = 0;
  Duration hello_at_{};

  Duration heartbeat_every_ = seconds(1);
  Duration lease_ = seconds(6);
  Duration next_heartbeat_{};
  Duration heard_{};
  std::uint64_t sequence_ = 0;
  std::uint64_t answered_sequence_ = 0;
  std::map<std::uint64_t, Duration> heartbeats_;  // id → sent at

  std::uint64_t desired_ = 0;
  std::uint64_t applied_ = 0;
  bool asked_on_connection_ = false;  // each connection begins with a request for the assignment
  std::optional<std::uint64_t> assignment_id_;
  Duration assignment_retry_{};

  std::deque<Post> outbox_;
};

}  // namespace skerry::daemon
