// SPDX-License-Identifier: Apache-2.0
#include "cli/connect/object_transfer.h"

namespace skerry::cli {

ObjectTransfer::ObjectTransfer(const Clock& clock, exchange::ChunkStore* chunks,
                               gossip::Gossip* gossip, const pb::Certificate* certificate)
    : clock_(clock),
      peers_({.clock = clock,
              .worker = worker_,
              .chunks = chunks,
              .gossip = gossip,
              .certificate = certificate},
             {}, *this) {}

ObjectTransfer::Use::Use(ObjectTransfer& transfer, exchange::ChunkStore& chunks)
    : transfer_(transfer) {
  transfer_.peers_.set_chunks(&chunks);
  transfer_.progress_.clear();
  transfer_.completed_.clear();
  transfer_.failure_.reset();
}

ObjectTransfer::Use::~Use() {
  transfer_.peers_.set_chunks(nullptr);
  transfer_.run_jobs();
}

void ObjectTransfer::work() {
  peers_.tick();
  run_jobs();
}

void ObjectTransfer::run_jobs() {
  while (worker_.waiting() > 0) {
    if (const Done done = worker_.next()) done();
  }
}

void ObjectTransfer::show(const std::vector<WantedObject>& wanted,
                          const ObjectSource::Shown& shown) const {
  std::uint64_t done = 0;
  std::uint64_t total = 0;
  for (const WantedObject& object : wanted) {
    const auto found = progress_.find(object.object);
    done += found == progress_.end() ? 0 : found->second.bytes;
    total += found == progress_.end() ? object.bytes : found->second.total_bytes;
  }
  shown(done, total);
}

bool ObjectTransfer::answered(const exchange::Answer& answer) {
  const auto* read = std::get_if<exchange::ChunkRead>(&answer);
  const bool failed =
      read != nullptr && !read->bytes && read->bytes.error().code != ErrorCode::kNotFound;
  if (failed && !read_failure_) read_failure_ = read->bytes.error();
  return true;
}

void ObjectTransfer::exchanged(const exchange::Effects& effects) {
  for (const auto& [object, progress] : effects.progress) progress_[object] = progress;
  for (const exchange::Completed& done : effects.completed) completed_.insert(done.object);
  if (!effects.failed.empty()) fail_with(effects.failed.front().error);
}

}  // namespace skerry::cli
