// SPDX-License-Identifier: Apache-2.0
// How many operations a second each slot computes of each job, from accepted
// commits.
//
// What was measured counts first, the nearer the better: this node, this device
// with this kind of job, this device with any kind. Next comes a share of what
// the card's maker publishes, and last the median of the fleet. Measured speeds
// of devices are durable; those of single nodes last as long as the process.
// Several cards that train one expert together count as a device of their own.
//
// Invariant: every speed is finite and above 0. At most kSpeeds devices and
// kNodes nodes are kept.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/core/context.h"
#include "coordinator/core/records.h"

namespace skerry::coordinator {

// What decides how fast a job trains and where it fits: equal for all experts
// of a run, another for its router.
struct Job {
  std::string kind;  // "bf16 fast 1152x256": precision, kernels, width, tokens
  std::string precision;
  double operations = 0;          // of one step
  std::uint64_t needs_bytes = 0;  // of the device, for one row at a time
};
Job job_of(const Run& run, bool router);

enum class SpeedFrom { kNode, kDevice, kOtherKind, kMaker, kFleet };
// "measured on this node", "measured on this device", …
const char* to_string(SpeedFrom from);

struct Speed {
  double operations_per_second = 0;
  SpeedFrom from = SpeedFrom::kFleet;
};

class Speeds : Room {
 public:
  static constexpr std::size_t kSpeeds = 1024;
  static constexpr std::size_t kNodes = 4096;

  explicit Speeds(Context& the_context) : Room(the_context) {}

  // A commit of `steps` was accepted that took `seconds` on so many cards.
  // REQUIRES: seconds > 0.
  void measured(const NodeId& node, const std::string& device, const Job& job, Step steps,
                double seconds, std::uint32_t cards = 1);
  struct Slot {
    NodeId node;
    std::string device;
  };
  // RETURNS: how many times as fast so many cards like the slot's are as half
  // of them. The node's own measurements count before those of its device. 0:
  // either was not measured.
  double gain(const Job& job, const Slot& slot, std::uint32_t cards) const;
  // RETURNS: the speed of each slot for the job, in their order.
  std::vector<Speed> of(const Job& job, const std::vector<Slot>& slots) const;

  // RETURNS: what is known of a slot whatever it trains.
  std::optional<Speed> of(const Slot& slot) const;

  std::string load(stored::Speed record);

 private:
  struct OfNode {
    Duration measured{};
    std::map<std::string, double> speeds;  // by device and kind
  };
  void remember(const NodeId& node, const std::string& key, double speed);
  std::optional<Speed> of_device(const Job& job, const std::string& device) const;

  Table<Plain<stored::Speed>> speeds_{context.journal, Kind::kSpeed};
  std::map<NodeId, OfNode> of_node_;
};

}  // namespace skerry::coordinator
