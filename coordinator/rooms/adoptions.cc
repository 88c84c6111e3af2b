// SPDX-License-Identifier: Apache-2.0
#include "coordinator/rooms/adoptions.h"

#include <algorithm>

#include "base/text.h"
#include "coordinator/rooms/router_job.h"
#include "coordinator/rooms/run_spec.h"

namespace skerry::coordinator {
namespace {

constexpr Duration kForgottenAfter = std::chrono::minutes(2);
constexpr std::uint64_t kSpecificationBytes = 4ULL << 20;
// Of nodes' records of one expert, later and older ones each: how many count at
// a time, so that lies cost few fetches.
constexpr std::size_t kClaims = 3;

}  // namespace

void Adoptions::hear_orphans(const std::vector<pb::RunRecord>& heard) {
  std::map<RunId, pb::RunRecord> known;
  for (const pb::RunRecord& run : heard) {
    const RunId id(run.run());
    if (runs_.all().contains(id) || runs_.deleted().contains(id)) continue;
    if (known.size() >= config.runs) break;
    known[id] = run;
    if (orphans_.contains(id)) continue;
    events_.tell(EventKind::kRunOrphaned, text("run ", run.name(), " (", id,
                                               "): nodes hold records of it, this coordinator "
                                               "does not know it; `skerry run list` shows it"));
  }
  orphans_ = std::move(known);
}

Result<const pb::RunRecord*> Adoptions::find_orphan(const std::string& name) const {
  if (const auto by_id = orphans_.find(RunId(name)); by_id != orphans_.end()) return &by_id->second;
  const pb::RunRecord* found = nullptr;
  for (const auto& [id, orphan] : orphans_) {
    if (orphan.name() != name) continue;
    if (found != nullptr)
      return fail(ErrorCode::kConflict, text("two orphans are named ", name, ", ", found->run(),
                                             " and ", id, "; say which by its id"));
    found = &orphan;
  }
  return found;
}

Result<std::optional<Adoption>> Adoptions::ask(const pb::RunRecord& orphan, bool partial,
                                               std::vector<std::string>& missing) {
  const RunId id(orphan.run());
  Adoption& adoption = adoptions_[id];
  adoption.about = orphan;
  adoption.asked = now.boot;
  effects.seeks.push_back(id);
  if (adoption.specification) TRY(check_specification(adoption));
  if (const Result<Hash> spec = Hash::from_raw(adoption.about.spec().manifest());
      spec && !adoption.specification && objects_.has(*spec)) {
    effects.reads.push_back(*spec);
  }
  missing = missing_parts(adoption);
  const bool may_go_on = missing.empty() || partial;
  const bool is_told = adoption.heads && now.boot - adoption.told >= config.adoption_pause;
  if (!adoption.specification || !is_told || !may_go_on) return std::nullopt;
  std::optional<Adoption> whole = std::move(adoption);
  adoptions_.erase(id);
  return whole;
}

void Adoptions::records_heard(const RunRecords& event) {
  const auto adoption = adoptions_.find(event.run);
  if (adoption == adoptions_.end()) return;
  const auto same = [](const RunRecords::Head& a, const RunRecords::Head& b) {
    return a.acknowledged == b.acknowledged && a.record.expert() == b.record.expert() &&
           a.record.checkpoint().manifest() == b.record.checkpoint().manifest();
  };
  auto& heads = adoption->second.heads;
  if (!heads || !std::ranges::equal(*heads, event.heads, same)) {
    unclaim(adoption->second);
    adoption->second.told = now.boot;
  }
  heads = event.heads;
}

void Adoptions::specification_read(const FileRead& event) {
  for (auto& [id, adoption] : adoptions_) {
    if (adoption.about.spec().manifest() != event.manifest.raw()) continue;
    pb::EnsembleReply specification;
    if (specification.ParseFromString(event.bytes))
      adoption.specification = std::move(specification);
  }
}

void Adoptions::forget() {
  std::erase_if(adoptions_, [&](const auto& each) {
    if (now.boot - each.second.asked < kForgottenAfter) return false;
    unclaim(each.second);
    return true;
  });
}

// What came for it and nothing names goes in time; what is wanted after all
// stays.
void Adoptions::unclaim(const Adoption& adoption) {
  const auto leave = [&](const pb::ObjectRef& object) {
    const Hash manifest = *Hash::from_raw(object.manifest());
    if (objects_.has(manifest) && !objects_.is_named(manifest)) objects_.leave_unclaimed(manifest);
  };
  leave(adoption.about.spec());
  for (const RunRecords::Head& head : adoption.heads.value_or(std::vector<RunRecords::Head>{}))
    leave(head.record.checkpoint());
}

// ---- What is asked of nodes ----

void Adoptions::visit_sought(
    const std::function<void(const pb::ObjectRef&, Purpose)>& visit) const {
  for (const auto& [id, adoption] : adoptions_) {
    if (adoption.about.spec().bytes() <= kSpecificationBytes)
      visit(adoption.about.spec(), Purpose::kFile);
    for (std::uint32_t index = 0; index < adoption.about.experts(); ++index) {
      for (const RunRecords::Head* head : sought_heads(adoption, index))
        visit(head->record.checkpoint(), Purpose::kCheckpoint);
    }
  }
  for (const auto& [name, dataset] : datasets_.all()) {
    if (dataset.record->ready() || !dataset.source.empty() || datasets_.user_of(name) == nullptr)
      continue;
    for (const pb::DatasetFile& file : dataset.record->content().files())
      visit(file.object(), Purpose::kFile);
  }
}

bool Adoptions::waits_for(const Hash& manifest) const {
  bool found = false;
  visit_sought(
      [&](const pb::ObjectRef& object, Purpose) { found |= object.manifest() == manifest.view(); });
  return found;
}

bool Adoptions::is_sought(const Hash& manifest) const {
  return objects_.is_damaged(manifest) || (!objects_.has(manifest) && waits_for(manifest));
}

// ---- What an expert goes on from ----

std::string Adoptions::wrong_head(const Adoption& adoption, const RunRecords::Head& head) const {
  const StoredObject* object = objects_.find(*Hash::from_raw(head.record.checkpoint().manifest()));
  if (object == nullptr) return "no connected node has given it back yet";
  const ObjectFacts& facts = object->facts;
  const bool is_its = object->checkpoint && facts.run.str() == adoption.about.run() &&
                      facts.expert == head.record.expert() && facts.step == head.record.step() &&
                      facts.expert < adoption.about.experts();
  if (!is_its) return "its bytes are not what the record says";
  if (facts.epoch.generation() >= context.generations_end())
    return text("its epoch is of generation ", facts.epoch.generation(),
                ", beyond those that this coordinator can have begun");
  return "";
}

// Whether a node's record is known to be wrong. Every commit after the
// acknowledged one has a parent, no older epoch, and starts at no earlier step.
// Which node held the lease is no longer known.
bool Adoptions::is_refuted(const Adoption& adoption, const RunRecords::Head& head,
                           const RunRecords::Head* acknowledged) const {
  if (adoption.specification &&
      head.record.step() > adoption.specification->run().spec().train().steps())
    return true;
  const StoredObject* object = objects_.find(*Hash::from_raw(head.record.checkpoint().manifest()));
  if (object == nullptr) return false;
  if (!wrong_head(adoption, head).empty()) return true;
  if (acknowledged == nullptr || head.record.step() <= acknowledged->record.step()) return false;
  const ObjectFacts& facts = object->facts;
  if (facts.epoch < Epoch(acknowledged->record.epoch()) || !facts.parent) return true;
  const StoredObject* parent = objects_.find(*facts.parent);
  return parent != nullptr &&
         (parent->facts.run != facts.run || parent->facts.expert != facts.expert ||
          parent->facts.step < acknowledged->record.step());
}

HeadCandidates Adoptions::candidates(const Adoption& adoption, std::uint32_t index) const {
  HeadCandidates found;
  if (!adoption.heads) return found;
  for (const RunRecords::Head& head : *adoption.heads) {
    if (head.record.expert() == index && head.acknowledged) found.acknowledged = &head;
  }
  for (const RunRecords::Head& head : *adoption.heads) {
    if (head.record.expert() != index || head.acknowledged) continue;
    if (is_refuted(adoption, head, found.acknowledged)) continue;
    const bool is_later = found.acknowledged == nullptr
                              ? found.later.empty()
                              : head.record.step() > found.acknowledged->record.step() &&
                                    head.record.epoch() >= found.acknowledged->record.epoch();
    std::vector<const RunRecords::Head*>& those = is_later ? found.later : found.older;
    if (those.size() < kClaims) those.push_back(&head);
  }
  return found;
}

// Those whose bytes are asked for. Of the older ones one at a time, and only
// once the better ones had time to come.
std::vector<const RunRecords::Head*> Adoptions::sought_heads(const Adoption& adoption,
                                                             std::uint32_t index) const {
  std::vector<const RunRecords::Head*> sought;
  const HeadCandidates all = candidates(adoption, index);
  const auto is_here = [&](const RunRecords::Head* head) {
    return wrong_head(adoption, *head).empty();
  };
  for (const RunRecords::Head* head : all.later) {
    sought.push_back(head);
    if (is_here(head)) return sought;
  }
  if (all.acknowledged != nullptr) {
    sought.push_back(all.acknowledged);
    if (is_here(all.acknowledged)) return sought;
  }
  if (now.boot - adoption.told < config.adoption_pause) return sought;
  for (const RunRecords::Head* head : all.older) {
    sought.push_back(head);
    if (is_here(head) ||
        copies_.is_repairing(*Hash::from_raw(head->record.checkpoint().manifest())))
      break;
  }
  return sought;
}

HeadChoice Adoptions::choose_head(const Adoption& adoption, std::uint32_t index) const {
  HeadChoice choice;
  const HeadCandidates all = candidates(adoption, index);
  const auto try_head = [&](const RunRecords::Head* head, const std::string& whose) {
    if (choice.head != nullptr) return;
    const std::string wrong = wrong_head(adoption, *head);
    if (wrong.empty()) {
      choice.head = head;
    } else if (!whose.empty()) {
      choice.missing.push_back(text("expert ", index, "'s checkpoint of step ", head->record.step(),
                                    ", ", whose, ": ", wrong));
    }
  };
  for (const RunRecords::Head* head : all.later)
    try_head(head, text("as ", name_of_author(head->author), " says"));
  if (all.acknowledged != nullptr) try_head(all.acknowledged, "the last acknowledged");
  for (const RunRecords::Head* head : all.older) try_head(head, "");
  if (choice.head == nullptr && choice.missing.empty())
    choice.missing.push_back(text("expert ", index, ": no record tells of a checkpoint that fits"));
  for (std::string& part : choice.missing) {
    part += choice.head == nullptr
                ? "; with --partial it begins anew"
                : text("; with --partial it goes on from step ", choice.head->record.step());
  }
  return choice;
}

std::vector<std::string> Adoptions::missing_parts(const Adoption& adoption) const {
  std::vector<std::string> missing;
  if (!adoption.specification)
    missing.emplace_back("its specification: no connected node has given it back yet");
  if (!adoption.heads) return missing;
  for (std::uint32_t index = 0; index < adoption.about.experts(); ++index)
    std::ranges::move(choose_head(adoption, index).missing, std::back_inserter(missing));
  return missing;
}

// ---- What a run is made of ----

Result<void> Adoptions::check_content(const pb::DatasetAdd& content,
                                      const DatasetName& name) const {
  const Dataset* known = datasets_.find(name);
  if (content.files().empty()) {
    if (known != nullptr) return {};
    return fail(ErrorCode::kNotFound,
                text("its specification is an older version's and does not say what dataset ", name,
                     " is made of: `skerry dataset add ", name, "` of the same images first"));
  }
  TRY(check_files(content));
  if (known == nullptr) return datasets_.check_room();
  if (known->digest == digest_of(content)) return {};
  return fail(ErrorCode::kConflict,
              text("dataset ", name, " exists with other content than the run was trained on: ",
                   "delete it, and the runs that use it, first"));
}

Result<void> Adoptions::check_specification(const Adoption& adoption) const {
  const pb::EnsembleReply& about = *adoption.specification;
  const pb::RunSpec& spec = about.run().spec();
  const std::uint32_t experts = about.dataset().partitions() + (trains_router(spec) ? 1 : 0);
  if (about.run().id() != adoption.about.run() || experts != adoption.about.experts() ||
      spec.name() != adoption.about.name())
    return fail(ErrorCode::kCorrupt, "its specification is of another run than its record");
  TRY(check_spec(spec));
  TRY(check_content(about.content(), DatasetName(spec.dataset())));
  if (!spec.init().empty()) TRY(check_content(about.weights(), DatasetName(spec.init())));
  std::uint64_t bytes = 0;
  const auto add = [&](const pb::ObjectRef& object) {
    if (!objects_.has(object.manifest())) bytes += object.bytes();
  };
  for (const pb::DatasetFile& file : about.content().files()) add(file.object());
  for (const pb::DatasetFile& file : about.weights().files()) add(file.object());
  for (std::uint32_t index = 0; index < adoption.about.experts(); ++index) {
    for (const RunRecords::Head* head : sought_heads(adoption, index))
      add(head->record.checkpoint());
  }
  return objects_.check_room(bytes, "the run");
}

std::string Adoptions::name_of_author(const NodeId& author) const {
  const Node* found = roster_.find(author);
  return found == nullptr ? text("node ", author.str().substr(0, 12)) : found->record->name();
}

}  // namespace skerry::coordinator
