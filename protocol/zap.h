// SPDX-License-Identifier: Apache-2.0
// Answers ZeroMQ's question about every handshake: is this key allowed (ZAP,
// RFC 27)? The server's own loop polls it.
#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include "protocol/zmq_socket.h"

namespace skerry::protocol {

class ZapHandler {
 public:
  // `domain` is the endpoint's name, `key` the raw public key that the
  // handshake proved, `address` the peer's. The answer's user id is the key in
  // hexadecimal.
  using Decide =
      std::function<bool(std::string_view domain, std::string_view key, std::string_view address)>;
  // `socket` is a new REP socket of the context that asks about handshakes. A
  // context has one handler.
  ZapHandler(ZmqSocket socket, Decide decide);
  ZmqSocket& socket() { return socket_; }
  const ZmqSocket& socket() const { return socket_; }
  void answer_all();

 private:
  ZmqSocket socket_;
  Decide decide_;
};

}  // namespace skerry::protocol
