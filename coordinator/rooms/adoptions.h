// SPDX-License-Identifier: Apache-2.0
// Orphans and adoptions. An orphan is a run that only records know, for example
// after a restore from an older backup. A person may adopt it.
//
//   - asked: the coordinator asks for the orphan's records, and asks nodes for
//     its specification and the head of each expert
//   - complete: all of them have arrived, or the person accepts to lose the
//     rest. adopt.cc creates the run
//
// Invariant: an orphan is neither a run of this coordinator nor a deleted run.
// Only `run delete` withdraws it. daemon/core/core.h states how long nodes keep
// its checkpoints. An adoption that nobody requests any more is forgotten, and
// the objects fetched for it are dropped later.
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
  Duration told{};  // when the heads last changed
  Duration asked{};
};

// Heads from which an expert of an adopted run may resume.
// LIFETIME: as long as the adoption.
struct HeadCandidates {
  std::vector<const RunRecords::Head*> later;  // than the acknowledged one, or if there is none
  const RunRecords::Head* acknowledged = nullptr;
  std::vector<const RunRecords::Head*> older;  // only if a person accepts to lose the others
};

struct HeadChoice {
  const RunRecords::Head* head = nullptr;  // null: the expert starts over
  std::vector<std::string> missing;        // a sentence for each better head that is missing
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

  const std::map<RunId, pb::RunRecord>& orphans() const { return orphans_; }
  // RETURNS: null if there is none.
  Result<const pb::RunRecord*> find_orphan(const std::string& name_or_id) const;
  void hear_orphans(const std::vector<pb::RunRecord>& heard);
  void forget_orphan(const RunId& id) { orphans_.erase(id); }

  // Calls visit(object, purpose) for each object that an adoption waits for,
  // and for each missing file of a dataset that a run uses.
  void visit_sought(const std::function<void(const pb::ObjectRef&, Purpose)>& visit) const;
  bool waits_for(const Hash& manifest) const;
  // Whether nodes are asked for it: it was lost, or an adoption needs it.
  bool is_sought(const Hash& manifest) const;

  // Starts or continues an adoption.
  // RETURNS: the adoption, once the run can be created; none until then, and
  // `missing` lists what is missing.
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
  Result<void> check_content(const pb::DatasetAdd& content, const DatasetName& name) const;

  EventLog& events_;
  const Runs& runs_;
  const Roster& roster_;
  Objects& objects_;
  const Datasets& datasets_;
  const Copies& copies_;
  std::map<RunId, pb::RunRecord> orphans_;
  std::map<RunId, Adoption> adoptions_;  // of them
};

}  // namespace skerry::coordinator
