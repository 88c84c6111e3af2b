// SPDX-License-Identifier: Apache-2.0
// What the daemon has asked for so far, read from the channel between steps.
#pragma once

#include <optional>

#include "protocol/channel.h"
#include "protocol/engine.pb.h"

namespace skerry::engine {

class ChannelSession {
 public:
  explicit ChannelSession(protocol::Channel channel) : channel_(std::move(channel)) {}

  // Takes in every request that has come; with `wait`, until at least one has.
  // False: the channel is closed or broken.
  bool read(bool wait);
  // False: the channel is closed.
  bool send(const pb::EngineEvent& event, int descriptor = -1);
  // Before leaving: gives what is queued time to go.
  void flush();

  const std::optional<pb::EngineRequest::Start>& start() const { return start_; }
  int checkpoint() const { return checkpoint_.get(); }  // the file that came with Start, or −1
  void close_checkpoint() { checkpoint_.reset(); }
  const pb::EngineRequest::RoundPlan& plan() const { return plan_; }
  const std::optional<pb::EngineRequest::Stop>& stop() const { return stop_; }
  bool snapshot_released() const { return released_; }
  void snapshot_sent() { released_ = false; }

 private:
  void take(protocol::Channel::Frame frame, pb::EngineRequest request);

  protocol::Channel channel_;
  std::optional<pb::EngineRequest::Start> start_;
  UniqueFd checkpoint_;
  pb::EngineRequest::RoundPlan plan_;
  std::optional<pb::EngineRequest::Stop> stop_;
  bool released_ = true;
};

}  // namespace skerry::engine
