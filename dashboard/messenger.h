// SPDX-License-Identifier: Apache-2.0
// Sends notices to a webhook and to a command, in a thread of its own: one that
// hangs delays no page.
//
// THREADS: one; the messenger's own thread touches nothing of the caller's.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/http.h"
#include "base/result.h"
#include "dashboard/notices.h"

namespace skerry::dashboard {

struct NotifyOptions {
  std::string url;      // gets the notice as the body of a POST; empty: none
  std::string command;  // a program, which has it in SKERRY_NOTICE; empty: none
  std::string cursor;   // a file: how far it has come

  bool any() const { return !url.empty() || !command.empty(); }
};

// Reads the section [notify] of a TOML file.
// ON FAILURE: kNotFound; kInvalid names the key and what was expected.
Result<NotifyOptions> read_notify_options(const std::string& path);

class Messenger {
 public:
  static constexpr std::chrono::seconds kLimit{10};  // of one attempt

  // LIFETIME: `clock` outlives this.
  // ON FAILURE: kCorrupt: the cursor's file holds no number.
  static Result<std::unique_ptr<Messenger>> start(NotifyOptions options, const Clock& clock);
  ~Messenger();

  // As Notices::offer.
  void offer(const std::vector<pb::Event>& events);

 private:
  Messenger(NotifyOptions options, const Clock& clock, std::optional<std::uint64_t> cursor);
  void loop();
  Result<void> send(const pb::Event& event);
  Result<void> post(const std::string& body);
  Result<void> run_command(const std::string& body);
  void store_cursor(std::uint64_t cursor);

  const NotifyOptions options_;
  const Clock& clock_;
  Http http_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  Notices notices_;
  std::optional<std::uint64_t> stored_;
  std::thread thread_;
};

}  // namespace skerry::dashboard
