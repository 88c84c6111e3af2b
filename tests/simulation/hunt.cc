// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/hunt.h"

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <map>
#include <sstream>
#include <vector>

#include "base/text.h"
#include "tests/planted/planted.h"
#include "tests/simulation/apart.h"
#include "tests/simulation/simulate.h"

namespace skerry::simulation {
namespace {

// The rule that a run breaks: "" for none, "CHECK" where the process ended
// itself. With the faults that took place.
struct Finding {
  std::string id;
  std::set<std::uint32_t> faults;
};

Finding find(const Scenario& scenario) {
  const auto work = [&](std::size_t, const Mouth& mouth) {
    const Report report = simulate(scenario);
    mouth.say(report.violations.empty() ? "" : report.violations.front().id);
    mouth.say(list_text({report.took_place.begin(), report.took_place.end()}));
  };
  Finding finding;
  run_apart(1, 1, work, [&](std::size_t, const Ended& ended) {
    if (ended.signal == SIGABRT) {
      finding = {"CHECK", scenario.only.value_or(std::set<std::uint32_t>{})};
    } else if (ended.lines.size() == 2) {
      finding = {ended.lines[0], parse_list(ended.lines[1])};
    }
  });
  return finding;
}

// ---- Planted bugs ----

#ifdef SKERRY_PLANTED
// Says each seed as it begins, and the rule at the end.
void hunt_one(const PlantedBug& bug, std::uint64_t seeds_limit, const Mouth& mouth) {
  planted_bug = static_cast<std::size_t>(&bug - kPlantedBugs);
  for (std::uint64_t seed = 1; seed <= seeds_limit; ++seed) {
    mouth.say(text(seed));
    const Report report = simulate({.seed = seed});
    if (report.violations.empty()) continue;
    return mouth.say(report.violations.front().id);
  }
  mouth.say("");
}
#else
void hunt_one(const PlantedBug&, std::uint64_t, const Mouth&) {}
#endif

}  // namespace

std::string list_text(const std::set<std::uint32_t>& numbers) {
  std::string out;
  for (const std::uint32_t number : numbers) out += text(out.empty() ? "" : ",", number);
  return out;
}

std::set<std::uint32_t> parse_list(const std::string& list) {
  std::set<std::uint32_t> numbers;
  std::istringstream words(list);
  for (std::string word; std::getline(words, word, ',');)
    numbers.insert(static_cast<std::uint32_t>(std::strtoul(word.c_str(), nullptr, 10)));
  return numbers;
}

// Delta debugging: leaves out ever smaller parts, as long as the same rule
// breaks.
std::optional<Shrunk> shrink(std::uint64_t seed) {
  Finding found = find({.seed = seed});
  if (found.id.empty()) return std::nullopt;
  if (found.id == "CHECK") {  // its faults are not known: those that a seed may have
    for (std::uint32_t number = 0; number < 200; ++number) found.faults.insert(number);
  }
  Shrunk shrunk{found.id, found.faults.size(), found.faults};
  std::size_t parts = 2;
  while (!shrunk.faults.empty()) {
    const std::vector<std::uint32_t> all(shrunk.faults.begin(), shrunk.faults.end());
    parts = std::min(parts, all.size());
    bool is_shorter = false;
    for (std::size_t part = 0; part < parts && !is_shorter; ++part) {
      std::set<std::uint32_t> rest;
      for (std::size_t i = 0; i < all.size(); ++i) {
        if (i * parts / all.size() != part) rest.insert(all[i]);
      }
      if (find({.seed = seed, .only = rest}).id != shrunk.id) continue;
      shrunk.faults = rest;
      is_shorter = true;
    }
    if (is_shorter) {
      parts = std::max<std::size_t>(parts - 1, 2);
    } else if (parts == all.size()) {
      break;
    } else {
      parts *= 2;
    }
  }
  return shrunk;
}

int hunt_planted(const std::string& name, std::uint64_t seeds_limit, unsigned processes) {
  std::vector<const PlantedBug*> wanted;
  for (const PlantedBug& bug : kPlantedBugs) {
    if (name.empty() ? bug.found_by != FoundBy::kFuzzing : bug.name == name) wanted.push_back(&bug);
  }
  std::map<std::string_view, std::uint64_t> needed;
  std::printf("%-24s %6s  %-8s %s\n", "planted", "seeds", "rule", "what");
  const auto work = [&](std::size_t job, const Mouth& mouth) {
    hunt_one(*wanted[job], seeds_limit, mouth);
  };
  run_apart(wanted.size(), processes, work, [&](std::size_t job, const Ended& ended) {
    const PlantedBug& bug = *wanted[job];
    std::string rule = ended.signal == SIGABRT ? "CHECK" : "none";
    std::size_t seeds = ended.lines.size();
    if (ended.signal == 0 && seeds > 0) {
      --seeds;
      if (!ended.lines.back().empty()) rule = ended.lines.back();
    }
    if (rule != "none") needed[bug.name] = seeds;
    std::printf("%-24s %6zu  %-8s %s\n", std::string(bug.name).c_str(), seeds, rule.c_str(),
                std::string(bug.about).c_str());
    std::fflush(stdout);
  });
  std::string seeds;
  for (const auto& [bug, count] : needed)
    seeds += text(seeds.empty() ? "" : ",", '"', bug, "\":", count);
  std::cout << "{\"planted\":" << wanted.size() << ",\"found\":" << needed.size() << ",\"seeds\":{"
            << seeds << "}}\n";
  return needed.size() == wanted.size() && !wanted.empty() ? 0 : 1;
}

}  // namespace skerry::simulation
