// SPDX-License-Identifier: Apache-2.0
// A small HTTP client, for a cloud's metadata server and for webhooks. It
// follows no redirect, uses no proxy, and reads at most kHttpBytes of an
// answer.
//
// ON FAILURE: every error is the caller's to log.
// - kUnavailable: nothing answers, or stop() was called.
// - kExhausted: an answer is too long.
// - kInvalid: an outward request leads to a link-local address.
// THREADS: one, except for stop() and wake().
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"

namespace skerry {

inline constexpr std::size_t kHttpBytes = 64 << 10;  // of an answer, with its headers

struct HttpRequest {
  std::string method = "GET";
  std::string url;
  std::vector<std::string> headers = {};  // "Name: value"
  std::string body = {};
  Duration limit = std::chrono::seconds(2);
  // To a server that a person names: HTTPS too, and never a link-local address,
  // where a cloud's metadata server is.
  bool outward = false;
};

struct HttpAnswer {
  long status = 0;
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;
};

class Http {
 public:
  Http();
  ~Http();
  Http(const Http&) = delete;
  Http& operator=(const Http&) = delete;

  // RETURNS: the answers in the order of the requests, which run at once.
  std::vector<Result<HttpAnswer>> ask(const std::vector<HttpRequest>& requests);
  Result<HttpAnswer> ask(const HttpRequest& request) { return std::move(ask({{request}}).front()); }
  // Waits, at most until the next wake().
  void wait(Duration limit);
  void wake();  // any thread
  // Ends what runs, and everything after it, at once. Any thread.
  void stop();
  bool is_stopped() const { return stopped_; }

 private:
  struct Curl;
  std::unique_ptr<Curl> curl_;
  std::atomic<bool> stopped_ = false;
};

}  // namespace skerry
