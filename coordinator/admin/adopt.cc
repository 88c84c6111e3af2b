// SPDX-License-Identifier: Apache-2.0
// `run adopt` makes a run of an orphan, from records and from what nodes hold.
//
// An expert resumes from the head that the coordinator's own record
// acknowledges. A later head in a node's record is preferred once its bytes are
// here and match: it may have been acknowledged just before the loss. An older
// head is used only if a person accepts to lose the acknowledged one.
//
// Missing files of its dataset are requested later. The dataset is not ready
// until they are here; nodes train on from their own copies.
#include <algorithm>

#include "base/text.h"
#include "coordinator/admin/admin.h"
#include "coordinator/admin/views.h"

namespace skerry::coordinator {
namespace {

void take_dataset(Rooms& rooms, const pb::DatasetAdd& content) {
  if (content.files().empty() || rooms.datasets.find(DatasetName(content.name())) != nullptr)
    return;
  rooms.datasets.insert(content);
  rooms.datasets.check_ready(DatasetName(content.name()));
}

Expert adopted_expert(Rooms& rooms, const Adoption& adoption, std::uint32_t index) {
  Expert expert;
  stored::Expert& record = expert.record.change();
  record.set_run(adoption.about.run());
  record.set_index(index);
  record.set_removed(index < adoption.specification->dataset().partitions() &&
                     std::ranges::count(adoption.about.without(), index) > 0);
  if (const RunRecords::Head* head = rooms.adoptions.choose_head(adoption, index).head;
      head != nullptr) {
    const pb::ExpertRecord& said = head->record;
    const StoredObject& object = *rooms.objects.find(*Hash::from_raw(said.checkpoint().manifest()));
    stored::Checkpoint& checkpoint = *record.add_checkpoints();
    checkpoint.set_manifest(said.checkpoint().manifest());
    checkpoint.set_manifest_bytes(object.manifest_bytes);
    checkpoint.set_bytes(object.bytes);
    checkpoint.set_step(object.facts.step);
    checkpoint.set_epoch(object.facts.epoch.value());
    checkpoint.set_attempt(object.facts.attempt);
    if (object.facts.parent) checkpoint.set_parent(object.facts.parent->raw());
    checkpoint.set_fingerprint(object.facts.fingerprint);
    checkpoint.set_round(said.round());
    if (rooms.roster.all().contains(head->author)) checkpoint.set_node(head->author.str());
    checkpoint.set_committed_unix_ms(rooms.now.unix_ms);
    checkpoint.mutable_metrics()->set_loss(said.loss());
    record.set_attempt(object.facts.attempt);
    record.set_attempt_at_commit(object.facts.attempt);
    record.set_epoch(object.facts.epoch.value());
    rooms.objects.name(checkpoint.manifest());
  }
  return expert;
}

// Where an expert does not go on from the head that this coordinator
// acknowledged, a person can read it.
void tell_head(Rooms& rooms, const Adoption& adoption, const Expert& expert) {
  const RunRecords::Head* const acknowledged =
      rooms.adoptions.candidates(adoption, expert.record->index()).acknowledged;
  const RunRecords::Head* const head =
      rooms.adoptions.choose_head(adoption, expert.record->index()).head;
  if (head == acknowledged) return;
  const std::string node = head == nullptr ? "" : rooms.adoptions.name_of_author(head->author);
  const std::string from = head == nullptr ? "begins anew"
                                           : text("goes on from step ", head->record.step(),
                                                  ", by the record of ", node);
  const std::string known =
      acknowledged == nullptr
          ? "no record of this coordinator acknowledges a step"
          : text("records of this coordinator acknowledge step ", acknowledged->record.step());
  rooms.events.tell(EventKind::kHeadAdopted, text(from, "; ", known), node, &expert, expert.step());
}

// REQUIRES: check_specification(adoption), and its heads are here as far as
// they are to come.
void adopt(Rooms& rooms, const Adoption& adoption) {
  const pb::EnsembleReply& about = *adoption.specification;
  const RunId id(adoption.about.run());
  take_dataset(rooms, about.content());
  take_dataset(rooms, about.weights());
  Run run;
  run.record.change().set_id(id.str());
  *run.record.change().mutable_spec() = about.run().spec();
  *run.record.change().mutable_model() = about.run().model();
  run.record.change().set_wanted(stored::WANTED_ACTIVE);
  run.record.change().set_experts(adoption.about.experts());
  run.record.change().set_steps_target(about.run().spec().train().steps());
  run.record.change().set_created_unix_ms(about.run().created_unix_ms());
  std::uint32_t generation = rooms.meta->generation();
  std::size_t heads = 0;
  for (std::uint32_t index = 0; index < adoption.about.experts(); ++index) {
    run.experts.push_back(adopted_expert(rooms, adoption, index));
    const Expert& expert = run.experts.back();
    heads += expert.has_head() ? 1 : 0;
    const std::uint32_t begun = expert.epoch().generation();
    if (begun > rooms.meta->generation()) generation = std::max(generation, begun + 1);
  }
  for (const RunRecords::Head& head : *adoption.heads) {  // also where its bytes are not here
    const std::uint32_t begun = Epoch(head.record.epoch()).generation();
    if (head.acknowledged && begun > rooms.meta->generation() && begun < rooms.generations_end())
      generation = std::max(generation, begun + 1);
  }
  if (generation > rooms.meta->generation()) {  // nobody that has seen it said Hello yet
    rooms.meta.change().set_generation(generation);
  }
  if (run.is_all_at_target()) run.record.change().set_wanted(stored::WANTED_DONE);
  rooms.adoptions.forget_orphan(id);
  Run& kept = rooms.runs.insert(std::move(run));
  for (Expert& expert : kept.experts) rooms.leases.raise_epoch(expert);
  rooms.events.tell_run(EventKind::kRunAdopted,
                        text("from records: ", heads, " of its ", kept.experts.size(),
                             " experts go on from a checkpoint that a node gave back"),
                        kept);
  for (const Expert& expert : kept.experts) tell_head(rooms, adoption, expert);
  rooms.must_reschedule = true;
  rooms.leases.reschedule();  // so that the answer tells who trains
}

}  // namespace

AdminResult run_adopt(Rooms& rooms, const pb::RunAdopt& request) {
  ASSIGN_OR_RETURN(const pb::RunRecord* const orphan, rooms.adoptions.find_orphan(request.run()));
  pb::AdminReply reply;
  pb::RunAdoptReply& answer = *reply.mutable_adopted();
  if (orphan == nullptr) {  // perhaps adopted by the question before
    ASSIGN_OR_RETURN(const Run* const run, find_run(rooms, request.run()));
    answer.set_done(true);
    *answer.mutable_run() = run_info(rooms, *run, true);
    return reply;
  }
  if (const auto known = rooms.runs.ids().find(orphan->name()); known != rooms.runs.ids().end()) {
    return fail(
        ErrorCode::kConflict,
        text("a run named ", orphan->name(), " exists (", known->second, "), and the orphan ",
             orphan->run(), " has the same name: stop and delete the one that is to go first"));
  }
  if (rooms.runs.all().size() >= rooms.config.runs)
    return fail(ErrorCode::kExhausted, "too many runs; delete some first");
  const RunId id(orphan->run());
  std::vector<std::string> missing;
  ASSIGN_OR_RETURN(const std::optional<Adoption> whole,
                   rooms.adoptions.ask(*orphan, request.partial(), missing));
  for (const std::string& part : missing) answer.add_missing(part);
  if (!whole) return reply;
  adopt(rooms, *whole);
  rooms.adoptions.unclaim(*whole);
  answer.set_done(true);
  *answer.mutable_run() = run_info(rooms, rooms.runs.at(id), true);
  return reply;
}

}  // namespace skerry::coordinator
