// SPDX-License-Identifier: Apache-2.0
// Who may read the dashboard.
//
// A page that another host's name leads to here must not read it (DNS
// rebinding), so the Host header must name this one. Beyond loopback a viewer
// also needs a session, which a one-time key starts.
//
// THREADS: one at a time.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace skerry::dashboard {

class Access {
 public:
  static constexpr std::size_t kSessions = 256;  // the oldest ends beyond

  struct Options {
    std::vector<std::string> hosts;  // names of this host, without ports
    bool needs_session = false;
  };

  explicit Access(Options options);

  // `header`: the value of Host, with or without a port.
  bool is_own_host(std::string_view header) const;

  bool needs_session() const { return options_.needs_session; }
  // The key that starts the next session.
  const std::string& key() const { return key_; }
  // RETURNS: the Set-Cookie header of a new session, if this is key(), which
  // then changes.
  std::optional<std::string> start_session(std::string_view key);
  // `header`: the value of Cookie. True if no session is needed.
  bool may_read(std::string_view header) const;

 private:
  Options options_;
  std::string key_;
  std::deque<std::string> sessions_;
};

}  // namespace skerry::dashboard
