// SPDX-License-Identifier: Apache-2.0
#include "cli/connect/connection.h"

#include <filesystem>

#include "base/text.h"
#include "cli/connect/blob_transfer.h"
#include "cli/connect/peer_memory.h"
#include "cli/shell/version.h"
#include "cli/shell/words.h"
#include "protocol/client.h"
#include "protocol/enrol.h"
#include "protocol/zmq_transport.h"

namespace skerry::cli {
namespace {

constexpr std::chrono::milliseconds kAskEvery{500};
constexpr std::chrono::milliseconds kLongestPoll{100};
constexpr std::chrono::seconds kEnrolWithin{15};

class Connection final : public AdminClient {
 public:
  Connection(protocol::Client client, Place place, const Clock& clock)
      : client_(std::move(client)),
        place_(std::move(place)),
        memory_(place_.origin),
        clock_(clock) {
    if (memory_.is_due(clock_.now())) client_.want_peers();
  }

  Result<pb::AdminReply> ask(const pb::AdminRequest& request) override {
    if (place_.role == pb::ROLE_NODE) {
      return fail(ErrorCode::kUnauthorised,
                  text(place_.origin,
                       " is a node's context, and a node may not ask: use an admin's or a "
                       "viewer's, or `skerry login TOKEN`"));
    }
    Result<pb::AdminReply> reply = client_.call(request);
    if (!spoke_ && client_.hello().has_peers())
      memory_.add(client_.hello().peers(), place_.coordinator_key, clock_.now());
    spoke_ = spoke_ || reply.has_value() || client_.hello().has_version();
    if (reply.has_value()) return reply;
    Error error = reply.error();
    // Silence from one that never spoke is one that cannot be reached.
    if (error.code == ErrorCode::kTimeout && !spoke_) {
      error = fail(
          ErrorCode::kUnavailable,
          text("cannot reach the coordinator at ", place_.endpoints.enrol,
               " (its control endpoint ", place_.endpoints.control, " does not answer; both from ",
               place_.origin, "): is it running, and are its ports open?"));
    }
    return error;
  }

  const Place& place() const override { return place_; }

  Result<void> fetch(const std::vector<WantedObject>& wanted, exchange::ChunkStore& chunk_store,
                     const Shown& shown) override {
    BlobTransfer transfer(client_, clock_, chunk_store);
    std::size_t started = 0;
    while (transfer.completed() < wanted.size()) {
      while (started < wanted.size() && started < transfer.completed() + kObjectsAtOnce) {
        const WantedObject& next = wanted[started++];
        transfer.fetch(next.object, next.manifest_bytes, next.parts);
      }
      TRY(transfer.turn(kLongestPoll));
      if (transfer.failure()) return *transfer.failure();
      transfer.show(wanted, shown);
    }
    return {};
  }

  Result<void> serve(exchange::ChunkStore& chunk_store,
                     const std::function<Result<bool>()>& finished) override {
    BlobTransfer transfer(client_, clock_, chunk_store);
    while (true) {
      ASSIGN_OR_RETURN(const bool done, finished());
      if (done) return {};
      const Duration until = clock_.now().boot + kAskEvery;
      while (clock_.now().boot < until) TRY(transfer.turn(until - clock_.now().boot));
      if (transfer.failure()) return *transfer.failure();
      if (transfer.read_failure()) return *transfer.read_failure();
    }
  }

 private:
  protocol::Client client_;
  Place place_;
  const PeerMemory memory_;
  const Clock& clock_;
  bool spoke_ = false;
};

}  // namespace

std::unique_ptr<AdminClient> make_connection(std::unique_ptr<protocol::ClientTransport> transport,
                                             Place place, const Clock& clock,
                                             const pb::EnrolRequest& readmission) {
  protocol::Client client(std::move(transport), clock, own_software());
  if (readmission.has_certificate()) client.readmit_by(readmission);
  return std::make_unique<Connection>(std::move(client), std::move(place), clock);
}

Result<std::unique_ptr<AdminClient>> open_connection(const std::string& context_path,
                                                     const Clock& clock) {
  ASSIGN_OR_RETURN(const protocol::Context context, protocol::read_context(context_path));
  ASSIGN_OR_RETURN(const protocol::Identity identity, protocol::identity_of(context, context_path));
  ASSIGN_OR_RETURN(auto transport, protocol::make_zmq_client(
                                       identity, {context.endpoints, context.coordinator_key}));
  return make_connection(std::move(transport),
                         {context.coordinator_key, context.endpoints, context.role, context_path},
                         clock,
                         protocol::build_readmission_request(identity, context.coordinator_key,
                                                             context.certificate, 1));
}

Result<Surroundings::LoggedIn> enrol_person(const std::string& token_text, const std::string& name,
                                            const std::string& context_path, const Clock& clock) {
  ASSIGN_OR_RETURN(const protocol::JoinToken token,
                   protocol::parse_token(token_text, clock.now().unix_ms));
  if (token.role == pb::ROLE_NODE) {
    return fail(
        ErrorCode::kInvalid,
        "this token joins a machine: use `skerryd join TOKEN --data DIR` there. For a person, "
        "`skerry token create --role viewer` or --role admin makes one");
  }
  const protocol::Identity identity = protocol::Identity::generate();
  ASSIGN_OR_RETURN(auto transport,
                   protocol::make_zmq_client(identity, {token.endpoints, token.coordinator_key}));
  ASSIGN_OR_RETURN(const protocol::Enrolled enrolled,
                   protocol::enrol(*transport, clock, token, identity, name, kEnrolWithin));
  protocol::Context context;
  context.name = enrolled.body.name();
  context.role = enrolled.body.role();
  context.endpoints = token.endpoints;
  context.coordinator_key = token.coordinator_key;
  context.seed = identity.seed();
  context.certificate = enrolled.certificate;
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::path(context_path).parent_path();
  if (!folder.empty()) std::filesystem::create_directories(folder, error);
  TRY(protocol::write_context(context_path, context));
  return Surroundings::LoggedIn{context_path, role_name(context.role), context.name};
}

}  // namespace skerry::cli
