// SPDX-License-Identifier: Apache-2.0
// A person's connection to the coordinator: blocking requests over control. One
// thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "protocol/context.h"
#include "protocol/transport.h"

namespace skerry::protocol {

class Client {
 public:
  // The transport is dialled at the first call. `software` names this program
  // in Hello.
  Client(std::unique_ptr<ClientTransport> transport, const Clock& clock, std::string software);

  // From a context file.
  static Result<Client> open(const std::filesystem::path& context_path, const Clock& clock,
                             std::string software);

  // Says Hello where that has not happened on this connection, asks, and waits
  // for the answer. Asks again after a lost connection, except for requests
  // that must not happen twice (token_create, run_create): those fail with
  // kUnavailable once they may have arrived. An error in the answer is returned
  // with its code; kTimeout where none came.
  Result<pb::AdminReply> call(const pb::AdminRequest& request,
                              Duration timeout = std::chrono::seconds(10));

  // Where the coordinator does not know our key, as after a restore, it is
  // asked by this to take it in again (protocol/enrol.h).
  void readmit_by(const pb::EnrolRequest& request) { readmission_ = request.SerializeAsString(); }
  // The first Hello asks for the nodes' records (HelloReply.peers). Before the
  // first call.
  void want_peers() { wants_peers_ = true; }

  // What the coordinator said about itself and us. Empty before the first
  // answer.
  const pb::HelloReply& hello() const { return hello_; }

  // For what goes over blob: events of that endpoint reach the handler during
  // call and poll.
  ClientTransport& transport() { return *transport_; }
  void set_blob_handler(std::function<void(ClientEvent)> handler) {
    blob_handler_ = std::move(handler);
  }
  Result<void> poll(Duration timeout);

 private:
  struct Pending {
    std::uint64_t id = 0;
    std::string bytes;
    bool sent = false;
    Duration sent_at{};
    bool once = false;
    bool came_first = false;  // refused, and not done: the Hello before it was lost
    Result<pb::AdminReply> answer;
    bool done = false;
  };
  void on_event(ClientEvent event);
  void on_opened();
  void on_enrol_event(const ClientEvent& event);
  void on_reply(const std::string& bytes);
  void send_pending();
  void finish(Result<pb::AdminReply> answer);

  std::unique_ptr<ClientTransport> transport_;
  const Clock* clock_;
  std::string software_;
  std::function<void(ClientEvent)> blob_handler_;
  bool open_ = false;
  bool wants_peers_ = false;
  std::uint64_t next_id_ = 1;
  bool greeted_ = false;        // on this connection
  bool hello_refused_ = false;  // said again with the next call
  int refusals_ = 0;
  std::string readmission_;  // empty: none
  bool asks_readmission_ = false;
  pb::HelloReply hello_;
  Pending pending_;
};

}  // namespace skerry::protocol
