// SPDX-License-Identifier: Apache-2.0
// Who looks on: told of what the hosts of a simulation see, after it took
// place. Invariants and statistics watch; none of them changes anything.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "coordinator/core/core.h"
#include "daemon/core/core.h"
#include "protocol/skerry.pb.h"

namespace skerry::simulation {

using Durable = std::map<std::string, std::string>;  // the coordinator's keys that survive a crash

class Watcher {
 public:
  virtual ~Watcher() = default;

  // ---- Coordinator ----
  struct CoordinatorStep {
    const coordinator::Core& core;                        // after the step
    const std::vector<coordinator::ExpertView>& experts;  // its
    const coordinator::Event* event;                      // none for a start
    const coordinator::Effects& effects;
    const Durable& durable;  // what the disk holds at this moment
  };
  virtual void coordinator_stepped(const CoordinatorStep&) {}
  virtual void coordinator_started(const coordinator::Core&, const Durable&) {}
  virtual void coordinator_stopped() {}
  virtual void coordinator_restored(const Durable&) {}
  // A message leaves. `key` is the peer's, as the transport knows it.
  virtual void coordinator_sends(const std::string& /*key*/, const pb::ControlReply&,
                                 const Durable&) {}
  virtual void coordinator_sends(const std::string& /*key*/, const pb::EnrolRequest&,
                                 const pb::EnrolReply&, const Durable&) {}
  virtual void coordinator_drops(const Hash&, const Durable&) {}
  // A control message, or a connection's end, has reached the process, which
  // may stand still.
  virtual void coordinator_hears(const coordinator::ConnectionId&, const std::string& /*key*/,
                                 const pb::ControlRequest&) {}
  virtual void coordinator_loses(const coordinator::ConnectionId&) {}
  virtual void coordinator_stood_still(Duration) {}

  // ---- Daemons ----
  struct DaemonStep {
    const std::string& name;
    const NodeId& id;
    const std::string& host;  // label
    std::uint64_t incarnation;
    const daemon::Core& core;                    // after the step
    const std::vector<daemon::SlotView>& slots;  // its
    const daemon::Event& event;
    const daemon::Effects& effects;
    std::function<bool(const Hash&)> has_stored;  // on its disk, perhaps damaged since
  };
  virtual void daemon_stepped(const DaemonStep&) {}
  // Told to drain while an engine of this slot stood at this step.
  virtual void daemon_drains(const std::string& /*name*/, const daemon::SlotView&,
                             Step /*trained*/) {}
  virtual void daemon_stopped(const std::string& /*name*/) {}

  // A rule that only the host can see was broken.
  virtual void violated(const std::string& /*id*/, const std::string& /*what*/) {}
};

}  // namespace skerry::simulation
