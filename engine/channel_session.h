// SPDX-License-Identifier: Apache-2.0
// Reads the daemon's requests from the channel between training steps.
#pragma once

#include <optional>

#include "protocol/channel.h"
#include "protocol/engine.pb.h"

namespace skerry::engine {

class ChannelSession {
 public:
  explicit ChannelSession(protocol::Channel channel) : channel_(std::move(channel)) {}

  // Reads every request that has arrived; with `wait`, waits until at least one
  // has.
  // RETURNS: false if the channel is closed or broken.
  bool read(bool wait);
  // RETURNS: false if the channel is closed.
  bool send(const pb::EngineEvent& event, int descriptor = -1);
  // Waits a moment for queued messages to leave. Call it before the process
  // exits.
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
