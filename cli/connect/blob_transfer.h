// SPDX-License-Identifier: Apache-2.0
// One transfer over a person's connection: an exchange whose only peer is the
// coordinator and whose disk is a shelf, whose jobs run at once. Lives for one
// fetch or one upload; one thread.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "exchange/exchange.h"
#include "exchange/shelf.h"
#include "protocol/client.h"

namespace skerry::cli {

class BlobTransfer {
 public:
  // Dials blob; all three must outlive this.
  BlobTransfer(protocol::Client& client, const Clock& clock, exchange::Shelf& shelf);
  ~BlobTransfer();
  BlobTransfer(const BlobTransfer&) = delete;
  BlobTransfer& operator=(const BlobTransfer&) = delete;

  void fetch(const Hash& object, std::uint64_t manifest_bytes,
             const std::vector<std::string>& parts);
  // Waits for what comes, at most for `timeout`, and does what follows from it.
  Result<void> turn(Duration timeout);

  std::size_t completed() const { return completed_; }
  const std::map<Hash, exchange::Progress>& progress() const { return progress_; }
  // The first thing that ends the transfer: a fetch that failed, a key that is
  // refused.
  const std::optional<Error>& failure() const { return failure_; }
  // The first chunk of ours that could not be read, though we offer its object.
  const std::optional<Error>& read_failure() const { return read_failure_; }

 private:
  void on_event(protocol::ClientEvent event);
  void disconnect();
  void carry_out();
  void note_failed_read(const exchange::Answer& answer);
  void flush();

  protocol::Client& client_;
  const Clock& clock_;
  exchange::Shelf& shelf_;
  exchange::Exchange exchange_;
  std::deque<std::string> unsent_;
  std::map<Hash, exchange::Progress> progress_;
  std::size_t completed_ = 0;
  std::optional<Error> failure_;
  std::optional<Error> read_failure_;
};

}  // namespace skerry::cli
