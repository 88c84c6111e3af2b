// SPDX-License-Identifier: Apache-2.0
// What a command fetches or offers, over any connections: the peers, how far
// each object is, and the first failure. Jobs of the disk run in work().
// THREADS: one.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <vector>

#include "base/clock.h"
#include "base/worker.h"
#include "cli/connect/admin_client.h"
#include "peer/peers.h"

namespace skerry::cli {

// Each object that is being fetched has a file open.
inline constexpr std::size_t kObjectsAtOnce = 16;

class ObjectTransfer : protected peer::Owner {
 public:
  std::size_t completed() const { return completed_.size(); }
  // The first reason to end the transfer: a fetch that failed, a refused key.
  const std::optional<Error>& failure() const { return failure_; }
  // The first offered chunk that could not be read.
  const std::optional<Error>& read_failure() const { return read_failure_; }
  // Reports the bytes of all these objects.
  void show(const std::vector<WantedObject>& wanted, const ObjectSource::Shown& shown) const;

 protected:
  // LIFETIME: as peer::Peers::Parts.
  ObjectTransfer(const Clock& clock, exchange::ChunkStore* chunks, gossip::Gossip* gossip,
                 const pb::Certificate* certificate);

  // A transfer that reads and writes `chunks` while this lives.
  class Use {
   public:
    Use(ObjectTransfer& transfer, exchange::ChunkStore& chunks);
    ~Use();
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    ObjectTransfer& transfer_;
  };
  // Does what is due, and the disk's jobs that follow.
  void work();
  void fail_with(Error why) {
    if (!failure_) failure_ = std::move(why);
  }

  // peer::Owner
  bool answered(const exchange::Answer& answer) override;
  void exchanged(const exchange::Effects& effects) override;

  const Clock& clock_;
  ManualWorker worker_;
  peer::Peers peers_;
  std::map<Hash, exchange::Progress> progress_;

 private:
  void run_jobs();

  std::set<Hash> completed_;
  std::optional<Error> failure_;
  std::optional<Error> read_failure_;
};

}  // namespace skerry::cli
