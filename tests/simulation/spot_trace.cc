// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/spot_trace.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "base/text.h"

namespace skerry::simulation {
namespace {

constexpr std::int64_t kLongestMs = std::int64_t{366} * 86400 * 1000;
constexpr std::size_t kNameBytes = 40;  // leaves room for the number of a second machine
constexpr double kSlowest = 0.01, kFastest = 100;

struct Line {
  std::string where;  // "line 3 of FILE"
  std::string_view content;
  std::vector<std::string_view> fields;
};

std::vector<Line> lines_of(std::string_view content, const std::string& file) {
  std::vector<Line> lines;
  for (std::size_t number = 1; !content.empty(); ++number) {
    const std::size_t end = std::min(content.find('\n'), content.size());
    std::string_view line = content.substr(0, end);
    content.remove_prefix(std::min(end + 1, content.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || line.starts_with('#')) continue;
    Line& made = lines.emplace_back(text("line ", number, " of ", file), line);
    for (std::string_view rest = line;;) {
      const std::size_t comma = rest.find(',');
      made.fields.push_back(rest.substr(0, comma));
      if (comma == std::string_view::npos) break;
      rest.remove_prefix(comma + 1);
    }
  }
  return lines;
}

template <class Number>
std::optional<Number> number_in(std::string_view word) {
  Number number{};
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  if (error != std::errc() || end != word.data() + word.size()) return std::nullopt;
  return number;
}

Error wrong(const Line& line, const std::string& expected, std::string_view found,
            const std::string& what_to_do) {
  return fail(ErrorCode::kInvalid, text(line.where, ": expected ", expected, ", found \"",
                                        found.substr(0, 80), "\"; ", what_to_do));
}

bool is_name(std::string_view word) {
  return !word.empty() && word.size() <= kNameBytes && word.front() != '-' &&
         std::ranges::all_of(word, [](char each) {
           return (each >= 'a' && each <= 'z') || (each >= '0' && each <= '9') || each == '-';
         });
}

Result<std::string> name_in(const Line& line, std::string_view word) {
  if (is_name(word)) return std::string(word);
  return wrong(line, text("a name of 1 to ", kNameBytes, " of a–z, 0–9 and -, the first no -"),
               word, "rename the machine");
}

}  // namespace

Result<SpotTrace> parse_spot_trace(std::string_view content, const std::string& file) {
  SpotTrace trace;
  std::map<std::string, std::size_t> present;  // → its machine
  std::map<std::string, unsigned> additions;
  for (const Line& line : lines_of(content, file)) {
    if (line.fields.size() != 3)
      return wrong(line, "TIME_MS,add|remove,NAME", line.content,
                   "write a change a line, such as 0,add,node1");
    const auto ms = number_in<std::int64_t>(line.fields[0]);
    if (!ms || *ms < 0 || *ms > kLongestMs)
      return wrong(line, "milliseconds from 0 to a year's", line.fields[0],
                   "count time from the trace's begin");
    const Duration at = std::chrono::milliseconds(*ms);
    if (at < trace.end)
      return wrong(line, text("no time before ", trace.end / std::chrono::milliseconds(1), " ms"),
                   line.fields[0], "sort the lines by time");
    ASSIGN_OR_RETURN(const std::string name, name_in(line, line.fields[2]));
    const auto found = present.find(name);
    if (line.fields[1] == "add") {
      if (found != present.end())
        return wrong(line, text("a machine that is not there, and ", name, " is"), line.content,
                     "remove it before it is added again");
      const unsigned times = ++additions[name];
      present[name] = trace.machines.size();
      trace.machines.push_back({times == 1 ? name : text(name, ".", times), at, std::nullopt});
    } else if (line.fields[1] == "remove") {
      if (found == present.end())
        return wrong(line, text("a machine that is there, and ", name, " is not"), line.content,
                     "add it before it is removed");
      trace.machines[found->second].removed = at;
      present.erase(found);
    } else {
      return wrong(line, "add or remove", line.fields[1],
                   "write a change a line, such as 0,add,node1");
    }
    trace.end = at;
  }
  if (trace.machines.empty())
    return fail(ErrorCode::kInvalid,
                text(file, ": expected a change a line, found none; write such as 0,add,node1"));
  return trace;
}

Result<std::map<std::string, double>> parse_spot_speeds(std::string_view content,
                                                        const std::string& file) {
  std::map<std::string, double> speeds;
  for (const Line& line : lines_of(content, file)) {
    if (line.fields.size() != 2)
      return wrong(line, "NAME,SPEED", line.content, "write a machine a line, such as node1,0.5");
    ASSIGN_OR_RETURN(const std::string name, name_in(line, line.fields[0]));
    const auto speed = number_in<double>(line.fields[1]);
    if (!speed || !(*speed >= kSlowest && *speed <= kFastest))
      return wrong(line, text("a speed from ", kSlowest, " to ", kFastest), line.fields[1],
                   "1 is the speed of a machine that is not listed");
    if (!speeds.emplace(name, *speed).second)
      return wrong(line, text("one speed for each machine, and ", name, " has one"), line.content,
                   "delete one of the lines");
  }
  return speeds;
}

SpotTrace SpotTrace::until(Duration limit) const {
  SpotTrace cut;
  cut.end = limit;
  for (SpotMachine machine : machines) {
    if (machine.added >= limit) continue;
    if (machine.removed && *machine.removed >= limit) machine.removed.reset();
    cut.machines.push_back(std::move(machine));
  }
  return cut;
}

}  // namespace skerry::simulation
