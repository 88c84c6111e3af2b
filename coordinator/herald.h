// What the coordinator tells the nodes so that they can do without it: records of its runs, their experts' heads and its
// revocations, and each run's specification as an object, made here from the state and stored nowhere.
//
// One thread, the loop's. Only what is durable may be told (S7).
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "coordinator/core.h"
#include "gossip/gossip.h"

namespace skerry::coordinator {

class Herald {
 public:
  // How often it talks and for how long its records live, and how signatures are checked.
  struct Manner {
    gossip::Config pace;
    gossip::SignatureChecks checks;
  };
  // `identity` outlives it. `saved`: what save() gave in an earlier life, or empty.
  Herald(const protocol::Signer& identity, std::size_t connections, std::uint64_t seed,
         const std::string& saved, Now now, const Manner& manner = {});

  // The facts as they are now, whole: what is there no more is withdrawn.
  void tell(const std::vector<RunFacts>& runs, const std::vector<NodeId>& revoked, Now now);

  // Of a specification: the chunk, or the manifest where both are one. Null: it is not of one.
  const std::string* read(const Hash& object, const Hash& chunk) const;

  gossip::Gossip& talk() { return gossip_; }
  std::string save(Now now) const { return gossip::save_table(gossip_.table(), now); }

 private:
  using Object = std::map<Hash, std::string>;  // its manifest under its own name, and its chunks
  void tell_run(const RunFacts& facts, Now now);
  void withdraw_others(const std::set<std::string>& runs, Now now);
  pb::ObjectRef offer(const pb::EnsembleReply& about);
  void say(const pb::RecordBody& body, Now now);

  gossip::Verifier verifier_;
  gossip::Gossip gossip_;
  std::map<Hash, Object> offered_;
  std::map<std::string, std::string>
      told_;  // run → the specification's bytes, and who is removed, as last told
  std::map<ExpertId, std::string> heads_;  // the manifest as last told
  std::set<NodeId> revoked_;
};

}  // namespace skerry::coordinator
