// SPDX-License-Identifier: Apache-2.0
// The conversation with the coordinator, without its content: Hello first,
// heartbeats, the desired version, and the requests that are said again until
// they are answered. Part of the core.
//
// An answer counts only if its request is still waited for: every request has
// an id that is never used twice, and asking again, or a new connection,
// forgets the old ids. So a late, doubled or foreign answer is nothing.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <string>

#include "daemon/core/context.h"
#include "daemon/core/event.h"

namespace skerry::daemon {

inline constexpr Duration kHelloRetry = seconds(2);
inline constexpr Duration kRefusedRetry =
    seconds(5);  // a coordinator that was restored from too old a backup
inline constexpr Duration kAssignmentRetry = seconds(2);
inline constexpr Duration kOutboxRetry = seconds(2);
inline constexpr Duration kSilenceLimit = seconds(5);  // no heartbeat answered: say Hello again
inline constexpr std::size_t kHeartbeatsOpen = 16;
inline constexpr std::size_t kOutboxItems = 64;
inline constexpr int kOutboxErrors = 5;
inline constexpr int kLeaseSlackPart = 20;  // ε = 1/20 of the time-to-live

class Session {
 public:
  explicit Session(std::uint64_t incarnation) : incarnation_(incarnation) {}

  enum class Phase {
    kClosed,   // waits for the transport
    kHello,    // Hello was sent or is due; waits for HelloReply; said again after kHelloRetry
    kRefused,  // generation lower than seen: waits kRefusedRetry, then Hello
    kOpen,     // answered; heartbeats run
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
  void greet_again(Context& context,
                   Duration wait);  // the other side does not know this connection

  // ---- Heartbeats ----
  bool heartbeat_due(Context& context);
  void heartbeat_soon() { next_heartbeat_ = {}; }
  // Fills in incarnation, sequence and version; `slots` and `draining` are the
  // caller's.
  pb::ControlRequest heartbeat(Context& context);
  // Until when the leases that this answer renews are valid; nothing if it
  // answers nothing that is waited for.
  std::optional<Duration> heartbeat_answered(std::uint64_t id, const pb::HeartbeatReply& reply,
                                             Context& context);
  bool is_heartbeat(std::uint64_t id) const { return heartbeats_.contains(id); }

  // ---- Desired version ----
  bool assignment_due(Context& context);
  void assignment_sent(std::uint64_t id, Context& context);
  bool is_assignment(std::uint64_t id) const { return assignment_id_ && id == *assignment_id_; }
  // False for one that is older than what was applied on this connection.
  bool assignment_answered(std::uint64_t version);
  std::uint64_t applied_version() const { return applied_; }

  // ---- Said until acknowledged ----
  void post(pb::ControlRequest request);  // drops the oldest report when full
  void send_posts(Context& context);
  // `retry`: an error that may pass; after kOutboxErrors of them it is dropped.
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
  bool asked_on_connection_ = false;  // the first assignment of a connection is always asked for
  std::optional<std::uint64_t> assignment_id_;
  Duration assignment_retry_{};

  std::deque<Post> outbox_;
};

}  // namespace skerry::daemon
