// SPDX-License-Identifier: Apache-2.0
// The thread that asks the cloud's metadata server whether this machine will
// end. Owned by main.cc.
//
// ON FAILURE: a server that answers nothing, or badly, is one error in the log
// until it gives a good answer. The daemon goes on.
// THREADS: its own; the functions below may be called from any.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "base/clock.h"
#include "base/http.h"
#include "daemon/core/event.h"
#include "daemon/host/notices.h"

namespace skerry::daemon {

enum class Spot { kAuto, kAws, kGcp, kAzure, kOff };

struct NoticeOptions {
  Spot spot = Spot::kAuto;
  std::string metadata;  // http://HOST:PORT in place of the platform's; empty: the platform's
};

class NoticeWatcher {
 public:
  // `tell`: called on the thread, once for each announcement.
  // LIFETIME: `clock`, and what `tell` refers to, outlive this.
  NoticeWatcher(NoticeOptions options, const Clock& clock,
                std::function<void(NoticeReceived)> tell);
  ~NoticeWatcher();  // does not wait for the server
  NoticeWatcher(const NoticeWatcher&) = delete;
  NoticeWatcher& operator=(const NoticeWatcher&) = delete;

  // The last commit is through: a platform that waits for the node need not do
  // so any longer. Repeated calls are harmless.
  void acknowledge();

 private:
  void watch();
  Spot find_platform();
  // Asks once, and tells what is new.
  Result<void> look(Spot platform);
  Result<void> look_aws();
  Result<void> look_gcp();
  Result<void> look_azure();
  Result<HttpAnswer> ask_aws(const std::string& path);
  HttpRequest request(Spot platform, const std::string& path) const;
  void announce(const std::optional<Notice>& notice);
  void advise(const std::optional<Notice>& notice);
  Result<void> acknowledge_azure();

  NoticeOptions options_;
  const Clock& clock_;
  std::function<void(NoticeReceived)> tell_;
  Http http_;
  std::string aws_token_;
  std::string gcp_tag_ = "0";  // of the last answer; 0: no value has it
  std::string azure_name_;
  std::string announced_;    // id of the last announcement told
  std::string azure_event_;  // to be acknowledged; empty: none
  bool is_advised_ = false;
  bool is_failing_ = false;
  std::atomic<bool> may_acknowledge_ = false;
  std::thread thread_;
};

}  // namespace skerry::daemon
