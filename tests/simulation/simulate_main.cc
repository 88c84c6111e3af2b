// SPDX-License-Identifier: Apache-2.0
// skerry-simulate: runs seeds and says what broke. One line of JSON at the end;
// 1 if anything was violated.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/text.h"
#include "tests/planted/planted.h"
#include "tests/simulation/fleet.h"
#include "tests/simulation/hunt.h"
#include "tests/simulation/simulate.h"
#include "tests/simulation/spot_main.h"
#include "tests/simulation/sum.h"

namespace {

using skerry::simulation::Report;
using skerry::simulation::Trace;

constexpr char kUsage[] =
    "usage: skerry-simulate [--seeds N] [--from S] [--processes N]   runs the seeds S … S+N−1 (100 "
    "from 1)\n"
    "       skerry-simulate --seed S [--all]         one seed, with its last lines, or all of "
    "them\n"
    "                       [--keep 3,8,21]          with these faults of its schedule only\n"
    "                       [--shrink]               finds a shorter schedule that breaks the same "
    "rule\n"
    "       skerry-simulate --planted [--bug NAME] [--seeds LIMIT] [--processes N]\n"
    "                       hunts each planted bug (a build with SKERRY_PLANTED)\n"
    "       Any run takes --bug NAME there.\n"
    "       skerry-simulate --nodes N                a fleet of N: half of it is lost, the "
    "coordinator goes "
    "away\n"
    "       skerry-simulate --trace FILE [--experts K] [--notice S] …   goodput on a spot market's "
    "trace;\n"
    "                       --help tells the rest\n";

struct Words {
  std::uint64_t from = 1;
  std::uint64_t seeds = 0;
  std::uint64_t seed = 0;
  std::uint64_t processes = 1;
  std::uint64_t nodes = 0;
  bool all = false;
  bool shrinks = false;
  bool planted = false;
  std::string bug;
  std::optional<std::set<std::uint32_t>> keep;
};

void tell_failure(const Report& report, const std::string& words) {
  std::cout << "\nseed " << report.seed << "; again: ./dev simulate --seed " << report.seed << words
            << "\n";
  for (const auto& line : report.last_lines) std::cout << line << "\n";
  for (const auto& violation : report.violations) {
    std::cout << violation.id << " at " << skerry::simulation::seconds_text(violation.at)
              << " s: " << violation.what << "\n";
  }
}

int run_one(const Words& words) {
  std::string again = words.keep ? " --keep " + skerry::simulation::list_text(*words.keep) : "";
  if (!words.bug.empty()) again += " --bug " + words.bug;
  const Report report =
      skerry::simulation::simulate({.seed = words.seed,
                                    .keep = words.all ? Trace::Keep::kAll : Trace::Keep::kLast,
                                    .only = words.keep});
  tell_failure(report, again);
  if (report.violations.empty()) std::cout << "nothing is violated\n";
  return report.violations.empty() ? 0 : 1;
}

// Each seed that fails with its story, and a line of JSON.
int shrink_one(const Words& words) {
  const auto shrunk = skerry::simulation::shrink(words.seed);
  if (!shrunk) {
    std::cout << "seed " << words.seed << " violates nothing\n";
    return 0;
  }
  std::cout << "seed " << words.seed << " breaks " << shrunk->id << " with "
            << shrunk->faults.size() << " of its " << shrunk->before
            << " faults; again: ./dev simulate --seed " << words.seed << " --keep "
            << skerry::simulation::list_text(shrunk->faults)
            << (words.bug.empty() ? "" : " --bug " + words.bug) << "\n";
  return 1;
}

bool parse(int argc, char** argv, Words& words) {
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    std::uint64_t* value = word == "--seeds"       ? &words.seeds
                           : word == "--from"      ? &words.from
                           : word == "--seed"      ? &words.seed
                           : word == "--processes" ? &words.processes
                           : word == "--nodes"     ? &words.nodes
                                                   : nullptr;
    if (word == "--all") {
      words.all = true;
    } else if (word == "--shrink") {
      words.shrinks = true;
    } else if (word == "--planted") {
      words.planted = true;
    } else if (i + 1 == argc) {
      return false;
    } else if (word == "--bug") {
      words.bug = argv[++i];
    } else if (word == "--keep") {
      words.keep = skerry::simulation::parse_list(argv[++i]);
    } else if (value != nullptr) {
      *value = std::strtoull(argv[++i], nullptr, 10);
    } else {
      return false;
    }
  }
  return words.processes > 0;
}

}  // namespace

int main(int argc, char** argv) {
  // What the parts under test would tell a person is expected here.
  skerry::init_log("skerry-simulate", skerry::LogLevel::kError);
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  const auto is_given = [&](const char* option) {
    return std::ranges::find(arguments, option) != arguments.end();
  };
  if (is_given("--help")) {
    std::cout << kUsage << "\n" << skerry::simulation::kSpotUsage;
    return 0;
  }
  if (is_given("--trace")) return skerry::simulation::run_spot_main(arguments);
  Words words;
  if (!parse(argc, argv, words)) {
    std::cerr << kUsage;
    return 2;
  }
  if (words.planted) {
    return skerry::simulation::hunt_planted(words.bug, words.seeds == 0 ? 2000 : words.seeds,
                                            static_cast<unsigned>(words.processes));
  }
  if (!words.bug.empty() && !skerry::plant(words.bug)) {
    std::cerr << "no planted bug " << words.bug << " in this build: see tests/planted/planted.h\n";
    return 2;
  }
  if (words.nodes != 0) return skerry::simulation::run_fleet(words.nodes);
  if (words.seed == 0) {
    return skerry::simulation::run_many(words.from, words.seeds == 0 ? 100 : words.seeds,
                                        static_cast<unsigned>(words.processes));
  }
  return words.shrinks ? shrink_one(words) : run_one(words);
}
