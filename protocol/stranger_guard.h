// Bounds what peers can hold that have not been recognised: connections in all, and bytes each (ZeroMQ bounds a frame,
// not the frames of a message that never ends).
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <unordered_map>

namespace skerry::protocol {

class StrangerGuard {
 public:
  explicit StrangerGuard(std::size_t limit) : limit_(limit) {}
  void accepted(int descriptor);  // throws out the oldest where there are too many
  void leaves(int descriptor);    // it is closed, or no stranger any more
  // Throws out who has sent too much; to be called a few times a second while not idle.
  void check_bytes(std::uint64_t limit_bytes);
  bool idle() const { return order_.empty(); }

 private:
  std::size_t limit_;
  std::list<int> order_;  // oldest first
  std::unordered_map<int, std::list<int>::iterator> at_;
};

}  // namespace skerry::protocol
