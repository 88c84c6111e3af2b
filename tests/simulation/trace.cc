// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/trace.h"

#include <cstdio>
#include <cstring>

#include "base/text.h"

namespace skerry::simulation {

std::string seconds_text(Duration time) {
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(time).count();
  char out[32];
  std::snprintf(out, sizeof out, "%lld.%03lld", static_cast<long long>(ms / 1000),
                static_cast<long long>(ms % 1000));
  return out;
}

// Eight bytes at a time by multiplication and rotation: speed matters here,
// resistance to an enemy does not.
void Trace::mix(std::string_view bytes) {
  std::uint64_t state = hash_ ^ (bytes.size() * 0x9e3779b97f4a7c15);
  while (!bytes.empty()) {
    std::uint64_t word = 0;
    const std::size_t taken = std::min<std::size_t>(8, bytes.size());
    std::memcpy(&word, bytes.data(), taken);
    bytes.remove_prefix(taken);
    state = (state ^ word) * 0xff51afd7ed558ccd;
    state ^= state >> 29;
  }
  hash_ = state * 0xc4ceb9fe1a85ec53 + 0x165667b19e3779f9;
}

void Trace::add(std::string_view who, std::string_view what, std::string_view bytes) {
  const std::int64_t time = timeline_.now().count();
  mix({reinterpret_cast<const char*>(&time), sizeof time});
  mix(who);
  mix(what);
  mix(bytes);
}

void Trace::keep_line(const std::string& text) {
  if (text.empty()) return;
  std::string time = seconds_text(timeline_.now());
  if (time.size() < 8) time.insert(0, 8 - time.size(), ' ');
  lines_.push_back(time + "  " + text);
  if (keep_ == Keep::kLast && lines_.size() > kLastLines) lines_.pop_front();
}

std::string Trace::name_in(const std::map<std::string, std::string>& names, const std::string& id,
                           const std::string& otherwise) {
  const auto found = names.find(id);
  return found == names.end() ? otherwise : found->second;
}

std::string Trace::object(const std::string& raw) const {
  if (raw.empty()) return "nothing";
  return name_in(objects_, raw, to_hex(raw).substr(0, 12));
}

std::string Trace::readable(std::string text) const {
  for (const auto* names : {&nodes_, &runs_}) {
    for (const auto& [id, name] : *names) {
      for (auto at = text.find(id); at != std::string::npos; at = text.find(id, at + name.size())) {
        text.replace(at, id.size(), name);
      }
    }
  }
  return text;
}

}  // namespace skerry::simulation
