// SPDX-License-Identifier: Apache-2.0
#include "protocol/client.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "protocol/enrol.h"
#include "protocol/validate.h"
#include "protocol/zmq_transport.h"

namespace skerry::protocol {
namespace {

// a coordinator that is just restarting can cause one
constexpr int kRefusalsToGiveUp = 3;
constexpr Duration kRetryInterval = std::chrono::seconds(3);
constexpr std::uint64_t kHelloId = 0;

// Requests whose work would happen twice.
bool only_once(const pb::AdminRequest& request) {
  return request.body_case() == pb::AdminRequest::kTokenCreate ||
         request.body_case() == pb::AdminRequest::kRunCreate;
}

std::string hello_bytes(const std::string& software, bool wants_peers) {
  pb::ControlRequest request;
  request.set_id(kHelloId);
  *request.mutable_hello()->mutable_version() = own_version();
  request.mutable_hello()->set_software(software);
  request.mutable_hello()->set_wants_peers(wants_peers);
  return request.SerializeAsString();
}

Endpoint endpoint_of(const ClientEvent& event) {
  return std::visit([](const auto& kind) { return kind.endpoint; }, event);
}

}  // namespace

Client::Client(std::unique_ptr<ClientTransport> transport, const Clock& clock, std::string software)
    : transport_(std::move(transport)), clock_(&clock), software_(std::move(software)) {}

Result<Client> Client::open(const std::filesystem::path& context_path, const Clock& clock,
                            std::string software) {
  ASSIGN_OR_RETURN(const Context context, read_context(context_path));
  ASSIGN_OR_RETURN(const Identity identity, identity_of(context, context_path));
  ASSIGN_OR_RETURN(auto transport,
                   make_zmq_client(identity, {context.endpoints, context.coordinator_key}));
  Client client(std::move(transport), clock, std::move(software));
  client.readmit_by(
      build_readmission_request(identity, context.coordinator_key, context.certificate, 1));
  return client;
}

Result<pb::AdminReply> Client::call(const pb::AdminRequest& request, Duration timeout) {
  const Duration deadline = clock_->now().boot + timeout;
  pb::ControlRequest envelope;
  envelope.set_id(next_id_++);
  *envelope.mutable_admin() = request;
  pending_ = Pending{};
  pending_.id = envelope.id();
  pending_.bytes = envelope.SerializeAsString();
  pending_.once = only_once(request);
  refusals_ = 0;
  transport_->dial(Endpoint::kControl);
  if (open_ && std::exchange(hello_refused_, false)) on_opened();
  send_pending();
  while (!pending_.done) {
    const Duration now = clock_->now().boot;
    if (now >= deadline) {
      finish(fail(ErrorCode::kTimeout,
                  text("no answer from the coordinator within ", human_duration(timeout),
                       open_ ? "" : ": cannot reach it (is it running?)")));
      break;
    }
    TRY(poll(std::min(deadline - now, kRetryInterval)));
    const bool is_due =
        open_ && pending_.sent && clock_->now().boot - pending_.sent_at >= kRetryInterval;
    if (is_due && !greeted_ && (!pending_.once || pending_.came_first)) {
      on_opened();  // the Hello was lost
    } else if (is_due && !pending_.once) {
      pending_.sent = false;
    }
    send_pending();
  }
  return std::move(pending_.answer);
}

Result<void> Client::poll(Duration timeout) {
  auto polled =
      transport_->poll(timeout, {}, [this](ClientEvent event) { on_event(std::move(event)); });
  if (!polled) return polled.error();
  return {};
}

void Client::on_event(ClientEvent event) {
  if (endpoint_of(event) == Endpoint::kEnrol) return on_enrol_event(event);
  if (endpoint_of(event) != Endpoint::kControl) {
    if (blob_handler_) blob_handler_(std::move(event));
    return;
  }
  if (std::holds_alternative<Opened>(event)) {
    on_opened();
  } else if (const auto* received = std::get_if<Received>(&event)) {
    on_reply(received->bytes);
  } else if (std::holds_alternative<Lost>(event)) {
    open_ = greeted_ = false;
    if (pending_.sent && pending_.once && !pending_.done) {
      finish(fail(
          ErrorCode::kUnavailable,
          "the connection was lost after the request was sent: it may have been done. Look before "
          "you repeat it"));
    }
    pending_.sent = false;
  } else if (const auto* refused = std::get_if<Refused>(&event); refused != nullptr) {
    if (refused->own_key && !readmission_.empty() && refusals_ == 0) {
      asks_readmission_ = true;
      transport_->dial(Endpoint::kEnrol);
    }
    if (asks_readmission_ || ++refusals_ < kRefusalsToGiveUp) return;
    finish(fail(ErrorCode::kUnauthorised, refused->own_key
                                              ? "the coordinator does not accept this context's "
                                                "key: it was never enrolled there, or is revoked"
                                              : "the server at the context's address is not the "
                                                "coordinator whose key the context holds"));
  }
}

void Client::on_enrol_event(const ClientEvent& event) {
  if (std::holds_alternative<Opened>(event)) {
    asks_readmission_ = transport_->send(Endpoint::kEnrol, readmission_).has_value();
  } else if (std::holds_alternative<Received>(event) || std::holds_alternative<Refused>(event)) {
    asks_readmission_ = false;
    ++refusals_;
    transport_->hang_up(Endpoint::kEnrol);
  }
}

void Client::on_opened() {
  open_ = transport_->send(Endpoint::kControl, hello_bytes(software_, wants_peers_)).has_value();
  greeted_ = false;
  pending_.sent = pending_.came_first = false;
  send_pending();
}

void Client::send_pending() {
  if (!open_ || pending_.sent || pending_.done || pending_.bytes.empty()) return;
  pending_.sent = transport_->send(Endpoint::kControl, pending_.bytes).has_value();
  pending_.sent_at = clock_->now().boot;
}

void Client::on_reply(const std::string& bytes) {
  auto reply = parse_control_reply(bytes);
  if (!reply) return finish(reply.error());
  if (reply->id() == kHelloId) {
    if (reply->has_error()) {
      hello_refused_ = true;
      return finish(from_message(reply->error()));
    }
    if (!reply->has_hello()) return;
    greeted_ = true;
    hello_ = reply->hello();
    // A coordinator whose disk just filled up refuses a change before its
    // answer to Hello is durable.
    if (std::exchange(pending_.came_first, false)) pending_.sent = false;
    wants_peers_ = false;
    if (!compatible(hello_.version())) {
      finish(fail(ErrorCode::kInvalid,
                  text("the coordinator speaks version ", hello_.version().major(), ".",
                       hello_.version().minor(), ", this program ", own_version().major(), ".",
                       own_version().minor(), ": use a release one minor version away at most")));
    }
    return;
  }
  if (reply->id() != pending_.id || pending_.done) return;
  // Refused because the Hello before it was lost.
  if (reply->has_error() && !greeted_) {
    pending_.came_first = true;
    return;
  }
  if (reply->has_error()) return finish(from_message(reply->error()));
  if (reply->has_admin()) return finish(std::move(*reply->mutable_admin()));
  finish(fail(ErrorCode::kInvalid,
              "the coordinator's answer is of a kind that this version does not know"));
}

void Client::finish(Result<pb::AdminReply> answer) {
  if (pending_.done) return;
  pending_.answer = std::move(answer);
  pending_.done = true;
}

}  // namespace skerry::protocol
