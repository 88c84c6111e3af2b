// SPDX-License-Identifier: Apache-2.0
// Runs that only records know, as after a restore from an older backup, and the
// ones among them that a person takes back.
//
//   asked      the orphan's records are asked for, and of nodes its
//              specification and the head of each expert
//   complete   all of them are here, or the person does without the rest:
//              adopt.cc makes a run of them
//
// Invariant: an orphan is no run of this coordinator, nor a deleted one; only a
// person's `run delete` withdraws it. daemon/core/core.h says how long nodes
// keep its checkpoints. An adoption that nobody asks for any more is forgotten,
// and what came for it is dropped in time.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/rooms/copies.h"
#include "coordinator/rooms/datasets.h"

namespace skerry::coordinator {

struct Adoption {
  pb::RunRecord about;
  std::optional<std::vector<RunRecords::Head>> heads;
  std::optional<pb::EnsembleReply> specification;
  Duration told{};  // when the heads were last others than before
  Duration asked{};
};

// Heads from which an expert of an adopted run may go on.
// LIFETIME: as long as the adoption.
struct HeadCandidates {
  std::vector<const RunRecords::Head*> later;  // than the acknowledged one, or if there is none
  const RunRecords::Head* acknowledged = nullptr;
  std::vector<const RunRecords::Head*> older;  // only if a person does without the others
};

struct HeadChoice {
  const RunRecords::Head* head = nullptr;  // null: the expert begins anew
  std::vector<std::string> missing;        // a sentence for each better one that is not here
};

class Adoptions : Room {
 public:
  // LIFETIME: the other rooms outlive this one.
  Adoptions(Context& the_context, EventLog& events, const Runs& runs, const Roster& roster,
            Objects& objects, const Datasets& datasets, const Copies& copies)
      : Room(the_context),
        events_(events),
        runs_(runs),
        roster_(roster),
        objects_(objects),
        datasets_(datasets),
        copies_(copies) {}

  const std::map<std::string, pb::RunRecord>& orphans() const { return orphans_; }  // by id
  // RETURNS: null if there is none.
  Result<const pb::RunRecord*> find_orphan(const std::string& name_or_id) const;
  void hear_orphans(const std::vector<pb::RunRecord>& heard);
  void forget_orphan(const std::string& id) { orphans_.erase(id); }

  // Calls visit(object, purpose) for each part that an adoption waits for, and
  // each file of a dataset that a run uses and that is not whole.
  void visit_sought(const std::function<void(const pb::ObjectRef&, Purpose)>& visit) const;
  bool waits_for(const Hash& manifest) const;
  // Nodes are asked for it: it was lost, or is to come with an adopted run.
  bool is_sought(const Hash& manifest) const;

  // Goes on with an adoption, or begins it. RETURNS: the adoption, once it can
  // be made a run; until then `missing` says what is not here.
  Result<std::optional<Adoption>> ask(const pb::RunRecord& orphan, bool partial,
                                      std::vector<std::string>& missing);
  void records_heard(const RunRecords& event);
  void specification_read(const FileRead& event);
  void forget();
  void unclaim(const Adoption& adoption);

  HeadCandidates candidates(const Adoption& adoption, std::uint32_t index) const;
  HeadChoice choose_head(const Adoption& adoption, std::uint32_t index) const;
  std::string name_of_author(const NodeId& author) const;

 private:
  std::vector<std::string> missing_parts(const Adoption& adoption) const;
  std::vector<const RunRecords::Head*> sought_heads(const Adoption& adoption,
                                                    std::uint32_t index) const;
  bool is_refuted(const Adoption& adoption, const RunRecords::Head& head,
                  const RunRecords::Head* acknowledged) const;
  std::string wrong_head(const Adoption& adoption, const RunRecords::Head& head) const;
  Result<void> check_specification(const Adoption& adoption) const;
  Result<void> check_content(const pb::DatasetAdd& content, const std::string& name) const;

  EventLog& events_;
  const Runs& runs_;
  const Roster& roster_;
  Objects& objects_;
  const Datasets& datasets_;
  const Copies& copies_;
  std::map<std::string, pb::RunRecord> orphans_;  // by id
  std::map<std::string, Adoption> adoptions_;     // of them
};

}  // namespace skerry::coordinator
