// SPDX-License-Identifier: Apache-2.0
// The HTTP server: the page, the board's documents, and a stream that says
// which of them changed.
//
// libmicrohttpd serves every connection in one thread of its own. A viewer who
// waits for a change is suspended there: it holds a version, no queue and no
// thread. A viewer who reads slowly misses versions, never documents.
//
// THREADS: one at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "dashboard/access.h"
#include "dashboard/board.h"

namespace skerry::dashboard {

class Server {
 public:
  static constexpr unsigned kConnections = 2048;       // more are closed at once
  static constexpr std::size_t kRequestBytes = 16384;  // of a request's line and headers
  static constexpr std::chrono::seconds kIdle{20};     // a silent connection is closed
  static constexpr std::chrono::seconds kPing{10};     // a stream without changes

  struct Options {
    std::string address;           // numeric, without brackets
    std::uint16_t port = 0;        // 0: any that is free
    std::string certificate, key;  // PEM; empty: plain HTTP
    Access::Options access;
    // Called in the server's thread after a key was used, with the next one.
    std::function<void(const std::string& key)> next_key;
  };

  // LIFETIME: `board` outlives the server.
  // ON FAILURE: kUnavailable: the port is taken or not allowed. kInvalid: the
  // address or certificate is malformed.
  static Result<std::unique_ptr<Server>> start(const Board& board, Options options);
  virtual ~Server() = default;

  virtual std::uint16_t port() const = 0;
  virtual const std::string& first_key() const = 0;
  // Sends changes of the board to the streams.
  virtual void publish() = 0;
  // Whether somebody has read within the last `duration`, or follows a stream.
  virtual bool has_viewer(std::chrono::milliseconds duration) const = 0;
};

}  // namespace skerry::dashboard
