// SPDX-License-Identifier: Apache-2.0
// Simulates a part of a fleet: many nodes in one process, each with its key and
// CURVE connection. They send a heartbeat once a second and do no work.
// Prints "ready" once every first heartbeat has its answer.
//
// bench.py drives it with lines:
//   - "measure SECONDS": prints a JSON list of the microseconds from each
//     heartbeat to its answer.
//   - "killed": prints "served NANOSECONDS", the monotonic time at which each
//     node has an answer to a heartbeat sent since.
#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "protocol/client.h"
#include "protocol/enrol.h"
#include "protocol/validate.h"
#include "protocol/zmq_transport.h"

namespace skerry {
namespace {

using protocol::Endpoint;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Duration kBeat = seconds(1);
constexpr Duration kSweep =
    milliseconds(20);  // how often those without a connection are looked at, at most
constexpr int kSweepShare =
    4;  // which takes a quarter of the time at most: others need the processor
constexpr std::size_t kDials = 16;  // at a time, of one process
constexpr Duration kRetry = seconds(2);
constexpr Duration kEnrolLimit = seconds(120);

Duration monotonic() { return std::chrono::steady_clock::now().time_since_epoch(); }

class Node {
 public:
  explicit Node(std::unique_ptr<protocol::ClientTransport> transport)
      : transport_(std::move(transport)) {}

  void dial(Duration now) {
    transport_->dial(Endpoint::kControl);
    next_beat_ = now + kBeat;
  }
  bool is_settled() const { return is_greeted_ && !send_failed_; }
  bool waits() const { return sent_at_.has_value(); }
  Duration next_beat() const { return next_beat_; }

  // The beats of a fleet are spread, and stay so.
  void beat(Duration now) {
    while (next_beat_ <= now) next_beat_ += kBeat;
    if (!is_greeted_) return;
    pb::ControlRequest request;
    request.set_id(++request_);
    request.mutable_heartbeat()->set_incarnation(kIncarnation);
    request.mutable_heartbeat()->set_sequence(++sequence_);
    send_failed_ = !transport_->send(Endpoint::kControl, request.SerializeAsString());
    if (!send_failed_) sent_at_ = now;
  }

  // A Hello may be lost, as every request.
  void ask_again(Duration now) {
    if (is_open_ && !is_greeted_ && now - hello_at_ >= kRetry) greet();
  }

  // Returns how long the last heartbeat took, where its answer came.
  std::optional<Duration> poll(Duration timeout) {
    std::optional<Duration> took;
    send_failed_ = false;
    const auto polled = transport_->poll(timeout, {}, [&](protocol::ClientEvent event) {
      if (std::holds_alternative<protocol::Opened>(event)) {
        is_open_ = true;
        greet();
      }
      if (std::holds_alternative<protocol::Lost>(event)) {
        is_open_ = is_greeted_ = false;
        sent_at_.reset();
      }
      if (const auto* got = std::get_if<protocol::Received>(&event)) {
        if (const auto answered = answer(got->bytes)) took = answered;
      }
    });
    if (!polled) std::cerr << polled.error().message << '\n';
    return took;
  }

 private:
  static constexpr std::uint64_t kIncarnation = 7;

  void greet() {
    pb::ControlRequest request;
    request.set_id(++request_);
    auto& hello = *request.mutable_hello();
    *hello.mutable_version() = protocol::own_version();
    hello.set_software("fleet_bench");
    hello.set_incarnation(kIncarnation);
    hello.add_slots()->set_device("cpu");
    is_greeted_ = false;
    hello_at_ = monotonic();
    [[maybe_unused]] const auto sent =
        transport_->send(Endpoint::kControl, request.SerializeAsString());
  }

  std::optional<Duration> answer(const std::string& bytes) {
    const auto reply = protocol::parse_control_reply(bytes);
    if (!reply) return std::nullopt;
    if (reply->has_hello()) is_greeted_ = true;
    if (reply->has_error()) greet();
    if (!reply->has_heartbeat() || !sent_at_ || reply->heartbeat().sequence() != sequence_)
      return std::nullopt;
    const Duration took = monotonic() - *sent_at_;
    sent_at_.reset();
    return took;
  }

  std::unique_ptr<protocol::ClientTransport> transport_;
  Duration next_beat_{};
  std::optional<Duration> sent_at_;
  std::uint64_t request_ = 0;
  std::uint64_t sequence_ = 0;
  Duration hello_at_{};
  bool is_open_ = false;
  bool is_greeted_ = false;
  bool send_failed_ = false;
};

class Fleet {
 public:
  Result<void> enrol(const std::string& token_text, std::size_t first, std::size_t count) {
    ASSIGN_OR_RETURN(const protocol::JoinToken token,
                     protocol::parse_token(token_text, SystemClock().now().unix_ms));
    ASSIGN_OR_RETURN(const std::shared_ptr<void> context, protocol::share_zmq_context(count));
    const SystemClock clock;
    for (std::size_t i = 0; i < count; ++i) {
      const auto identity = protocol::Identity::generate();
      ASSIGN_OR_RETURN(
          auto transport,
          protocol::make_zmq_client(identity, {token.endpoints, token.coordinator_key, context}));
      TRY(protocol::enrol(*transport, clock, token, identity, text("fleet-", first + i),
                          kEnrolLimit));
      nodes_.push_back(std::make_unique<Node>(std::move(transport)));
    }
    return {};
  }

  // A few at a time: if all dial at once on a machine that is too small, the
  // handshakes time out and start again.
  void dial() {
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      Duration due = monotonic();
      for (; must_reschedule() >= kDials; due = monotonic()) turn();
      nodes_[i]->dial(due);
      order_.push_back(i);
    }
  }

  bool work() {
    turn();
    return take_commands();
  }

  bool all_served() const { return served_ == nodes_.size(); }

 private:
  void turn() {
    const Duration now = monotonic();
    for (; !order_.empty() && nodes_[order_.front()]->next_beat() <= now; order_.pop_front()) {
      Node& node = *nodes_[order_.front()];
      const bool waited = node.waits();
      node.beat(now);
      order_.push_back(order_.front());
      if (node.waits() && !waited) waiting_.push_back(order_.front());
    }
    if (now >= next_sweep_) sweep(now);
    listen();
  }

  std::size_t must_reschedule() const {
    return static_cast<std::size_t>(std::count_if(
        order_.begin(), order_.end(), [&](std::size_t i) { return !nodes_[i]->is_settled(); }));
  }

  void sweep(Duration now) {
    for (std::size_t i = 0; i < order_.size(); ++i) {
      if (nodes_[i]->is_settled()) continue;
      note(i, nodes_[i]->poll(Duration::zero()));
      nodes_[i]->ask_again(now);
    }
    next_sweep_ = now + std::max(kSweep, kSweepShare * (monotonic() - now));
  }

  // Waits at most a millisecond: that is how exact a time is.
  void listen() {
    if (waiting_.empty()) {
      ::usleep(500);
      return;
    }
    Duration timeout = milliseconds(1);
    for (std::size_t left = waiting_.size(); left > 0; --left) {
      const std::size_t i = waiting_.front();
      waiting_.pop_front();
      note(i, nodes_[i]->poll(std::exchange(timeout, Duration::zero())));
      if (nodes_[i]->waits()) waiting_.push_back(i);
    }
  }

  void note(std::size_t i, const std::optional<Duration>& took) {
    if (!took) return;
    was_served_.resize(nodes_.size());
    if (!was_served_[i]) ++served_;
    was_served_[i] = true;
    if (measure_until_) took_us_.push_back(*took / std::chrono::microseconds(1));
  }

  bool take_commands() {
    if (measure_until_ && monotonic() >= *measure_until_) {
      measure_until_.reset();
      std::cout << nlohmann::json(took_us_).dump() << std::endl;
    }
    if (tells_served_ && all_served()) {
      tells_served_ = false;
      std::cout << "served " << monotonic().count() << std::endl;
    }
    pollfd input{STDIN_FILENO, POLLIN, 0};
    if (::poll(&input, 1, 0) <= 0) return true;
    std::string line;
    if (!std::getline(std::cin, line)) return false;
    if (line == "killed") {
      was_served_.assign(nodes_.size(), false);
      served_ = 0;
      tells_served_ = true;
    } else if (line.starts_with("measure ")) {
      took_us_.clear();
      measure_until_ = monotonic() + seconds(std::stoi(line.substr(8)));
    }
    return true;
  }

  std::vector<std::unique_ptr<Node>> nodes_;
  std::deque<std::size_t> order_;    // of the beats to come
  std::deque<std::size_t> waiting_;  // for an answer
  std::vector<bool> was_served_;
  std::size_t served_ = 0;
  bool tells_served_ = false;
  std::optional<Duration> measure_until_;
  std::vector<std::int64_t> took_us_;
  Duration next_sweep_{};
};

int run(const std::string& token, std::size_t first, std::size_t count) {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  Fleet fleet;
  if (const Result<void> enrolled = fleet.enrol(token, first, count); !enrolled) {
    std::cerr << "fleet_bench: " << enrolled.error().message << '\n';
    return 1;
  }
  fleet.dial();
  while (!fleet.all_served()) {
    if (!fleet.work()) return 1;
  }
  std::cout << "ready" << std::endl;
  while (fleet.work()) {
  }
  return 0;
}

}  // namespace
}  // namespace skerry

int main(int argc, char** argv) {
  if (argc != 4) {
    std::cerr << "usage: fleet_bench TOKEN FIRST COUNT\n";
    return 2;
  }
  return skerry::run(argv[1], std::strtoul(argv[2], nullptr, 10),
                     std::strtoul(argv[3], nullptr, 10));
}
