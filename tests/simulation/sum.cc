// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/sum.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <iostream>
#include <limits>
#include <map>
#include <set>
#include <sstream>
#include <string>

#include "base/text.h"
#include "tests/simulation/apart.h"
#include "tests/simulation/nemesis.h"
#include "tests/simulation/simulate.h"

namespace skerry::simulation {
namespace {

constexpr std::uint64_t kSeedsOfJob = 25;
constexpr double kMinutesLeast = 5;
constexpr std::uint64_t kSeedsToCount = 100;  // below it no share is judged

// Independent of order, so that processes can share the seeds out.
std::uint64_t mixed(std::uint64_t seed, std::uint64_t hash) {
  std::uint64_t word = (hash ^ (seed * 0x9e3779b97f4a7c15)) * 0xff51afd7ed558ccd;
  word ^= word >> 32;
  return word * 0xc4ceb9fe1a85ec53;
}

std::string line_of(const Report& report) {
  std::string line = text(report.seed, ' ', report.violations.size(), ' ',
                          report.virtual_time.count(), ' ', report.commits, ' ', report.events, ' ',
                          report.longest_wait.count(), ' ', report.trace_hash);
  for (const auto& [kind, count] : report.faults) line += text(' ', kind, ' ', count);
  return line;
}

class Sum {
 public:
  Sum() {
    for (const auto& kind : Nemesis::kinds()) faults_[kind] = seeds_with_[kind] = 0;
  }
  // Whether that seed broke no rule.
  bool add(const std::string& line);
  void add_crash(std::uint64_t seed) {
    ++violations_;
    failing_.insert(seed);
  }
  void print() const;
  bool is_right() const;

 private:
  std::uint64_t seeds_ = 0;
  std::uint64_t violations_ = 0;
  std::set<std::uint64_t> failing_;
  std::uint64_t commits_ = 0;
  std::uint64_t events_ = 0;
  std::uint64_t hash_ = 0;
  std::uint64_t fewest_faults_ = std::numeric_limits<std::uint64_t>::max();
  std::int64_t shortest_ns_ = std::numeric_limits<std::int64_t>::max();
  std::int64_t total_ns_ = 0;
  std::int64_t longest_wait_ns_ = 0;
  std::map<std::string, std::uint64_t> faults_;
  std::map<std::string, std::uint64_t> seeds_with_;
};

bool Sum::add(const std::string& line) {
  std::istringstream words(line);
  std::uint64_t seed = 0, violations = 0, commits = 0, events = 0, hash = 0;
  std::int64_t virtual_ns = 0, wait_ns = 0;
  words >> seed >> violations >> virtual_ns >> commits >> events >> wait_ns >> hash;
  ++seeds_;
  violations_ += violations;
  commits_ += commits;
  events_ += events;
  hash_ += mixed(seed, hash);
  total_ns_ += virtual_ns;
  longest_wait_ns_ = std::max(longest_wait_ns_, wait_ns);
  std::uint64_t total = 0;
  std::string kind;
  for (std::uint64_t count = 0; words >> kind >> count; total += count) {
    faults_[kind] += count;
    ++seeds_with_[kind];
  }
  if (violations > 0) {  // cut short
    failing_.insert(seed);
    return false;
  }
  fewest_faults_ = std::min(fewest_faults_, total);
  shortest_ns_ = std::min(shortest_ns_, virtual_ns);
  if (total < kFaultsLeast || static_cast<double>(virtual_ns) < kMinutesLeast * 60e9) {
    failing_.insert(seed);
    std::cout << "\nseed " << seed << " tests too little: " << total << " faults in "
              << static_cast<double>(virtual_ns) / 60e9 << " minutes; again: ./dev simulate --seed "
              << seed << "\n";
  }
  return true;
}

bool Sum::is_right() const {
  const bool all_kinds = std::ranges::all_of(seeds_with_, [&](const auto& kind) {
    return kind.second * 4 >= seeds_ || seeds_ < kSeedsToCount;
  });
  return failing_.empty() && all_kinds;
}

void Sum::print() const {
  const auto object = [](const auto& counts) {
    std::string out;
    for (const auto& [kind, count] : counts)
      out += text(out.empty() ? "" : ",", '"', kind, "\":", count);
    return "{" + out + "}";
  };
  std::string failing;
  for (const std::uint64_t seed : failing_) failing += text(failing.empty() ? "" : ",", seed);
  char hex[17];
  std::snprintf(hex, sizeof hex, "%016llx", static_cast<unsigned long long>(hash_));
  std::cout << "{\"seeds\":" << seeds_ << ",\"violations\":" << violations_
            << ",\"failing_seeds\":[" << failing << "]"
            << ",\"virtual_hours\":" << static_cast<double>(total_ns_) / 3600e9
            << ",\"shortest_minutes\":" << static_cast<double>(shortest_ns_) / 60e9
            << ",\"commits\":" << commits_ << ",\"events\":" << events_
            << ",\"longest_wait_seconds\":" << static_cast<double>(longest_wait_ns_) / 1e9
            << ",\"fewest_faults\":" << fewest_faults_ << ",\"faults\":" << object(faults_)
            << ",\"seeds_with\":" << object(seeds_with_) << ",\"trace_hash\":\"" << hex << "\"}\n";
}

// The same seed once more, with its story.
void tell(std::uint64_t seed) {
  std::cout << "\nseed " << seed << " fails; again: ./dev simulate --seed " << seed
            << ", and shorter: ./dev simulate --seed " << seed << " --shrink\n";
  const Report report = simulate({.seed = seed, .keep = Trace::Keep::kLast});
  for (const auto& line : report.last_lines) std::cout << line << "\n";
  for (const auto& violation : report.violations)
    std::cout << violation.id << " at " << seconds_text(violation.at) << " s: " << violation.what
              << "\n";
}

}  // namespace

int run_many(std::uint64_t from, std::uint64_t seeds, unsigned processes) {
  Sum sum;
  const auto first = [&](std::size_t job) { return from + job * kSeedsOfJob; };
  const auto work = [&](std::size_t job, const Mouth& mouth) {
    const std::uint64_t end = std::min(first(job) + kSeedsOfJob, from + seeds);
    for (std::uint64_t seed = first(job); seed < end; ++seed)
      mouth.say(line_of(simulate({.seed = seed})));
  };
  run_apart(
      (seeds + kSeedsOfJob - 1) / kSeedsOfJob, processes, work,
      [&](std::size_t job, const Ended& ended) {
        std::uint64_t seed = first(job);
        for (const std::string& line : ended.lines) {
          if (!sum.add(line)) tell(seed);
          ++seed;
        }
        if (ended.signal == 0) return;
        sum.add_crash(seed);
        std::cout << "\nseed " << seed
                  << (ended.signal == SIGABRT ? " ends by a CHECK" : " does not come to its end")
                  << "; again: ./dev simulate --seed " << seed << "\n";
        const std::uint64_t next = std::min(first(job) + kSeedsOfJob, from + seeds);
        if (seed + 1 < next)
          std::cout << "not run because of it: the seeds " << seed + 1 << " to " << next - 1
                    << "\n";
      });
  sum.print();
  return sum.is_right() ? 0 : 1;
}

}  // namespace skerry::simulation
