// SPDX-License-Identifier: Apache-2.0
// A transfer over a person's connection to the coordinator.
// LIFETIME: one fetch or one upload. THREADS: one.
#pragma once

#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "cli/connect/object_transfer.h"
#include "protocol/client.h"

namespace skerry::cli {

class BlobTransfer final : public ObjectTransfer {
 public:
  // Dials the blob endpoint. LIFETIME: all three outlive this.
  BlobTransfer(protocol::Client& client, const Clock& clock, exchange::ChunkStore& chunk_store);
  ~BlobTransfer() override;
  BlobTransfer(const BlobTransfer&) = delete;
  BlobTransfer& operator=(const BlobTransfer&) = delete;

  void fetch(const Hash& object, std::uint64_t manifest_bytes,
             const std::vector<std::string>& parts);
  // Waits for events, at most for `timeout`, and handles them.
  Result<void> turn(Duration timeout);

 private:
  Result<void> send(const NodeId& peer, std::string_view bytes) override;
  void on_event(protocol::ClientEvent event);

  protocol::Client& client_;
};

}  // namespace skerry::cli
