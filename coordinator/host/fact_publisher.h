// SPDX-License-Identifier: Apache-2.0
// Publishes what nodes need to know when the coordinator is gone: records of
// its runs, of their experts' heads and of its revocations. It also offers each
// run's specification as an object, made from the state and stored nowhere.
//
// REQUIRES: what is published is durable (S7).
// THREADS: one, the loop's.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "coordinator/core/core.h"
#include "gossip/gossip.h"

namespace skerry::coordinator {

class FactPublisher {
 public:
  // How often it talks and for how long its records live, and how signatures
  // are checked.
  struct Options {
    gossip::Config pace;
    gossip::SignatureChecks checks;
  };
  // `identity` outlives it. `saved`: what save() gave in an earlier life, or
  // empty.
  FactPublisher(const protocol::Signer& identity, std::size_t connections, std::uint64_t seed,
                const std::string& saved, Now now, const Options& options = {});

  // The facts as they are now, whole. Records of the runs in `deleted` are
  // withdrawn, also where an older one turns up later; a run that is in neither
  // is left alone.
  void tell(const std::vector<RunFacts>& runs, const std::set<RunId>& deleted,
            const std::vector<NodeId>& revoked, Now now);
  // What records say of this coordinator, where they have changed since the
  // last call.
  std::optional<RecordsReceived> hear(Now now);

  RunRecords records_of(const RunId& run, Now now) const;

  // Of a specification: the chunk, or the manifest where both are one. Null: it
  // is not of one.
  const std::string* read(const Hash& object, const Hash& chunk) const;

  gossip::Gossip& talk() { return gossip_; }
  const gossip::Table& table() const { return gossip_.table(); }
  // SavedRecords of the nodes that can be dialled; of many, as many as have
  // room in `limit_bytes`.
  std::string peers(std::size_t limit_bytes, Now now) const;
  std::string save(Now now) const { return gossip_.save(now); }
  // Where it has grown, save() is due.
  std::uint64_t incarnation() const { return gossip_.incarnation(); }

 private:
  using Object = std::map<Hash, std::string>;  // its manifest under its own name, and its chunks
  void tell_run(const RunFacts& facts, Now now);
  void withdraw_deleted(Now now);
  pb::ObjectRef offer(const pb::EnsembleReply& about);
  void say(const pb::RecordBody& body, Now now);

  gossip::Verifier verifier_;
  gossip::Gossip gossip_;
  std::map<Hash, Object> offered_;
  // The specification's bytes, and who is removed, as last told.
  std::map<RunId, std::string> told_;
  std::map<ExpertId, std::string> heads_;  // the manifest as last told
  std::set<NodeId> revoked_;
  std::set<RunId> deleted_;
  gossip::Fingerprints heard_{};  // of the table, at the last hear()
  std::size_t recalled_ = 0;
};

}  // namespace skerry::coordinator
