// SPDX-License-Identifier: Apache-2.0
#include "cli/connect/blob_transfer.h"

#include <algorithm>

#include "protocol/validate.h"

namespace skerry::cli {
namespace {

using protocol::Endpoint;

const NodeId kCoordinator("the coordinator");

}  // namespace

BlobTransfer::BlobTransfer(protocol::Client& client, const Clock& clock,
                           exchange::ChunkStore& chunk_store)
    : ObjectTransfer(clock, &chunk_store, nullptr, nullptr), client_(client) {
  client_.set_blob_handler([this](protocol::ClientEvent event) { on_event(std::move(event)); });
  client_.transport().dial(Endpoint::kBlob);
}

BlobTransfer::~BlobTransfer() {
  client_.set_blob_handler({});
  client_.transport().hang_up(Endpoint::kBlob);
}

void BlobTransfer::fetch(const Hash& object, std::uint64_t manifest_bytes,
                         const std::vector<std::string>& parts) {
  peers_.fetch({object, manifest_bytes, {kCoordinator}, parts});
}

Result<void> BlobTransfer::turn(Duration timeout) {
  work();
  const Duration due = peers_.wake_at() - clock_.now().boot;
  return client_.poll(std::min(timeout, std::max(due, Duration{})));
}

Result<void> BlobTransfer::send(const NodeId& /*peer*/, std::string_view bytes) {
  return client_.transport().send(Endpoint::kBlob, bytes);
}

void BlobTransfer::on_event(protocol::ClientEvent event) {
  if (std::holds_alternative<protocol::Opened>(event)) {
    peers_.disconnected(kCoordinator);
    peers_.connected(kCoordinator, true);
  } else if (std::holds_alternative<protocol::Lost>(event)) {
    peers_.disconnected(kCoordinator);
  } else if (const auto* received = std::get_if<protocol::Received>(&event)) {
    Result<pb::BlobMessage> message = protocol::parse_blob_message(received->bytes);
    if (message) peers_.received(kCoordinator, std::move(*message));
  } else if (const auto* refused = std::get_if<protocol::Refused>(&event);
             refused != nullptr && refused->own_key) {
    fail_with(fail(ErrorCode::kUnauthorised,
                   "the coordinator does not accept this context's key any more"));
  }
  work();
}

}  // namespace skerry::cli
