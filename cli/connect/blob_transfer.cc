// SPDX-License-Identifier: Apache-2.0
#include "cli/connect/blob_transfer.h"

#include <algorithm>

#include "protocol/validate.h"

namespace skerry::cli {
namespace {

using protocol::Endpoint;

const exchange::PeerId kCoordinator("the coordinator");
constexpr std::chrono::milliseconds kFullQueuePoll{5};

}  // namespace

BlobTransfer::BlobTransfer(protocol::Client& client, const Clock& clock, exchange::Shelf& shelf)
    : client_(client), clock_(clock), shelf_(shelf), exchange_({}) {
  client_.set_blob_handler([this](protocol::ClientEvent event) { on_event(std::move(event)); });
  client_.transport().dial(Endpoint::kBlob);
}

BlobTransfer::~BlobTransfer() {
  client_.set_blob_handler({});
  client_.transport().hang_up(Endpoint::kBlob);
}

void BlobTransfer::fetch(const Hash& object, std::uint64_t manifest_bytes,
                         const std::vector<std::string>& parts) {
  exchange_.fetch({object, manifest_bytes, {kCoordinator}, parts}, clock_.now());
}

Result<void> BlobTransfer::turn(Duration timeout) {
  exchange_.tick(clock_.now());
  carry_out();
  flush();
  if (!unsent_.empty()) timeout = std::min<Duration>(timeout, kFullQueuePoll);
  if (const auto wake = exchange_.wake_at())
    timeout = std::clamp(*wake - clock_.now().boot, Duration{}, timeout);
  return client_.poll(timeout);
}

void BlobTransfer::on_event(protocol::ClientEvent event) {
  if (std::holds_alternative<protocol::Opened>(event)) {
    disconnect();
    exchange_.connected(kCoordinator, clock_.now());
  } else if (std::holds_alternative<protocol::Lost>(event)) {
    disconnect();
  } else if (const auto* received = std::get_if<protocol::Received>(&event)) {
    Result<pb::BlobMessage> message = protocol::parse_blob_message(received->bytes);
    if (message.has_value()) exchange_.received(kCoordinator, std::move(*message), clock_.now());
  } else if (const auto* refused = std::get_if<protocol::Refused>(&event);
             refused != nullptr && refused->own_key) {
    failure_ = fail(ErrorCode::kUnauthorised,
                    "the coordinator does not accept this context's key any more");
  }
  carry_out();
  flush();
}

void BlobTransfer::disconnect() {
  unsent_.clear();
  if (exchange_.is_connected(kCoordinator)) exchange_.disconnected(kCoordinator, clock_.now());
}

// Answers to jobs lead to further jobs.
void BlobTransfer::carry_out() {
  while (true) {
    exchange::Effects effects = exchange_.take_effects();
    for (const exchange::Send& send : effects.sends)
      unsent_.push_back(send.message.SerializeAsString());
    for (const auto& [object, progress] : effects.progress) progress_[object] = progress;
    completed_ += effects.completed.size();
    if (!effects.failed.empty() && !failure_) failure_ = effects.failed.front().error;
    if (effects.jobs.empty()) return;
    for (const exchange::Job& job : effects.jobs) {
      exchange::Answer answer = exchange::perform(shelf_, job);
      note_failed_read(answer);
      exchange_.answered(std::move(answer), clock_.now());
    }
  }
}

void BlobTransfer::note_failed_read(const exchange::Answer& answer) {
  const auto* read = std::get_if<exchange::ChunkRead>(&answer);
  if (read == nullptr || read->bytes.has_value() ||
      read->bytes.error().code == ErrorCode::kNotFound)
    return;
  if (!read_failure_) read_failure_ = read->bytes.error();
}

void BlobTransfer::flush() {
  while (!unsent_.empty()) {
    if (!client_.transport().send(Endpoint::kBlob, unsent_.front()).has_value()) return;
    unsent_.pop_front();
  }
}

}  // namespace skerry::cli
