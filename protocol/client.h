// SPDX-License-Identifier: Apache-2.0
// A person's connection to the coordinator: blocking requests over the control
// endpoint.
// THREADS: one.
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
  // The first call dials. `software` names this program in Hello.
  Client(std::unique_ptr<ClientTransport> transport, const Clock& clock, std::string software);

  // Opens the connection that a context file describes.
  static Result<Client> open(const std::filesystem::path& context_path, const Clock& clock,
                             std::string software);

  // Sends Hello if this connection has not, sends the request, and waits for
  // the answer. Retries after a lost connection, except requests that must not
  // run twice (token_create, run_create). Those fail with kUnavailable once
  // they may have arrived.
  // ON FAILURE: the code of the answer's error; kTimeout if no answer came.
  Result<pb::AdminReply> call(const pb::AdminRequest& request,
                              Duration timeout = std::chrono::seconds(10));

  // If the coordinator does not know our key, as after a restore, call() sends
  // this request for readmission (protocol/enrol.h).
  void readmit_by(const pb::EnrolRequest& request) { readmission_ = request.SerializeAsString(); }
  // The first Hello asks for the nodes' records (HelloReply.peers).
  // REQUIRES: no call was made yet.
  void want_peers() { wants_peers_ = true; }

  // RETURNS: what the coordinator reported about itself and this client. Empty
  // before the first answer.
  const pb::HelloReply& hello() const { return hello_; }

  // For traffic over the blob endpoint: its events reach the handler during
  // call() and poll().
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
    bool came_first = false;  // refused and not executed: the Hello before it was lost
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
  bool hello_refused_ = false;  // sent anew with the next call
  int refusals_ = 0;
  std::string readmission_;  // empty: none
  bool asks_readmission_ = false;
  pb::HelloReply hello_;
  Pending pending_;
};

}  // namespace skerry::protocol
