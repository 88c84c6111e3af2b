// SPDX-License-Identifier: Apache-2.0
// What happened in a simulation: a hash over every message and effect (S17),
// and, while recording, lines for people. Nodes and objects are given names
// here, so that lines read as stories.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/hash.h"
#include "base/ids.h"
#include "tests/simulation/timeline.h"

namespace skerry::simulation {

class Trace {
 public:
  enum class Keep {
    kNothing,  // the hash only
    kLast,     // and the last kLastLines lines
    kAll,
  };
  static constexpr std::size_t kLastLines = 60;

  Trace(const Timeline& timeline, Keep keep) : timeline_(timeline), keep_(keep) {}

  // Into the hash: who, what, the bytes of it and the time.
  void add(std::string_view who, std::string_view what, std::string_view bytes = {});
  // A line for people; built only if it is kept.
  template <class Line>
  void line(Line&& build) {
    if (keep_ != Keep::kNothing) keep_line(build());
  }
  std::uint64_t hash() const { return hash_; }
  const std::deque<std::string>& lines() const { return lines_; }

  void name_node(const NodeId& id, const std::string& name) { nodes_[id.str()] = name; }
  void name_run(const std::string& id, const std::string& name) { runs_[id] = name; }
  void name_object(const Hash& hash, const std::string& name) { objects_[hash.raw()] = name; }
  std::string node(const std::string& id) const { return name_in(nodes_, id, id); }
  std::string run(const std::string& id) const { return name_in(runs_, id, id); }
  // From the raw hash.
  std::string object(const std::string& raw) const;
  // A text in which ids of nodes and runs are replaced by their names.
  std::string readable(std::string text) const;

 private:
  static std::string name_in(const std::map<std::string, std::string>& names, const std::string& id,
                             const std::string& otherwise);
  void keep_line(const std::string& text);
  void mix(std::string_view bytes);

  const Timeline& timeline_;
  Keep keep_;
  std::uint64_t hash_ = 0x6a09e667f3bcc908;
  std::deque<std::string> lines_;
  std::map<std::string, std::string> nodes_;
  std::map<std::string, std::string> runs_;
  std::map<std::string, std::string> objects_;
};

// "12.345" seconds.
std::string seconds_text(Duration time);

}  // namespace skerry::simulation
