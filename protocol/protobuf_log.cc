// SPDX-License-Identifier: Apache-2.0
#include "protocol/protobuf_log.h"

#include <google/protobuf/stubs/logging.h>

#include <mutex>
#include <optional>
#include <string>

#include "base/log.h"

namespace skerry::protocol {
namespace {

constexpr Duration kWrittenEvery = std::chrono::minutes(1);

// libprotobuf calls a bare function, from any thread.
struct State {
  std::mutex mutex;
  const Clock* clock = nullptr;
  std::optional<Duration> written_at;
  std::uint64_t left_out = 0;
};

State& state() {
  static State instance;
  return instance;
}

void write_seldom(google::protobuf::LogLevel, const char*, int, const std::string& message) {
  State& own = state();
  const std::lock_guard lock(own.mutex);
  const Duration now = own.clock->now().boot;
  if (own.written_at && now - *own.written_at < kWrittenEvery) {
    ++own.left_out;
    return;
  }
  own.written_at = now;
  log_warning("libprotobuf", {{"says", message}, {"left_out_before", own.left_out}});
  own.left_out = 0;
}

}  // namespace

void bound_protobuf_log(const Clock& clock) {
  state().clock = &clock;
  google::protobuf::SetLogHandler(write_seldom);
}

}  // namespace skerry::protocol
