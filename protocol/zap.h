// SPDX-License-Identifier: Apache-2.0
// Answers ZeroMQ's question of every handshake: may this key come in (RFC 27)?
// Polled by the server's own loop.
#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include "protocol/zmq_socket.h"

namespace skerry::protocol {

class ZapHandler {
 public:
  // `domain` is the endpoint's word, `key` the raw public key that the
  // handshake proved, `address` the peer's. The answer's user id is the key in
  // hexadecimal.
  using Decide =
      std::function<bool(std::string_view domain, std::string_view key, std::string_view address)>;
  // `socket` is a fresh REP socket of the context whose handshakes are asked
  // about; a context has one handler.
  ZapHandler(ZmqSocket socket, Decide decide);
  ZmqSocket& socket() { return socket_; }
  const ZmqSocket& socket() const { return socket_; }
  void answer_all();

 private:
  ZmqSocket socket_;
  Decide decide_;
};

}  // namespace skerry::protocol
