// SPDX-License-Identifier: Apache-2.0
// Messages that did not fit into their connections yet, in order for each peer.
// What the exchange's windows allow is all that can wait here.
#pragma once

#include <deque>
#include <iterator>
#include <map>
#include <string>
#include <utility>

#include "base/result.h"
#include "exchange/jobs.h"

namespace skerry::exchange {

class Outbox {
 public:
  void push(const PeerId& peer, std::string bytes) { queues_[peer].push_back(std::move(bytes)); }
  bool has(const PeerId& peer) const { return queues_.contains(peer); }
  bool is_empty() const { return queues_.empty(); }
  void drop(const PeerId& peer) { queues_.erase(peer); }

  // `send(peer, bytes)` → Result<void>. kExhausted: the connection is full, the
  // rest waits for the next flush. With any other error the message is lost, as
  // its connection is: the exchange asks again.
  template <class SendOne>
  void flush(const SendOne& send) {
    for (auto queue = queues_.begin(); queue != queues_.end();) {
      auto& [peer, messages] = *queue;
      while (!messages.empty()) {
        const Result<void> sent = send(peer, messages.front());
        if (!sent && sent.error().code == ErrorCode::kExhausted) break;
        messages.pop_front();
      }
      queue = messages.empty() ? queues_.erase(queue) : std::next(queue);
    }
  }

 private:
  std::map<PeerId, std::deque<std::string>> queues_;  // none empty
};

}  // namespace skerry::exchange
