// `run adopt`: an orphan becomes a run again, from records and from what nodes hold.
//
//   asked       the orphan's records are asked for, and of nodes its specification and the head of each expert
//   complete    all of them are here, or the person does without the rest: dataset, run and experts are made of them in one
//               batch, under epochs beyond those of any node
//
// An expert goes on from the head that the coordinator's own record acknowledges. A later one that a node's record names goes
// before it once its bytes are here and fit: its commit may have been acknowledged just before the loss. An older one takes
// its place only where a person does without it.
//
// Files of its dataset that nobody gave back by then are asked for later: the dataset is not ready until they are here, and
// nodes train on from their own. An adoption that nobody asks for any more is forgotten; what has come stays a while.
#include <algorithm>

#include "base/text.h"
#include "coordinator/machine.h"
#include "coordinator/router_job.h"
#include "protocol/limits.h"

namespace skerry::coordinator {
namespace {

constexpr Duration kForgottenAfter = std::chrono::minutes(2);
constexpr std::uint64_t kSpecificationBytes = 4ULL << 20;
// Of nodes' records of one expert, later and older ones each: how many count at a time, so that lies cost few fetches.
constexpr std::size_t kClaims = 3;

}  // namespace

AdminResult Machine::run_adopt(const pb::RunAdopt& request) {
  ASSIGN_OR_RETURN(const pb::RunRecord* const orphan, find_orphan(request.run()));
  pb::AdminReply reply;
  pb::RunAdoptReply& answer = *reply.mutable_adopted();
  if (orphan == nullptr) {  // perhaps adopted by the question before
    ASSIGN_OR_RETURN(const Run* const run, find_run(request.run()));
    answer.set_done(true);
    *answer.mutable_run() = run_info(*run, true);
    return reply;
  }
  if (const auto known = runs.ids().find(orphan->name()); known != runs.ids().end()) {
    return fail(ErrorCode::kConflict,
                text("a run named ", orphan->name(), " exists (", known->second, "), and the orphan ",
                     orphan->run(), " has the same name: stop and delete the one that is to go first"));
  }
  if (runs.all().size() >= config.runs)
    return fail(ErrorCode::kExhausted, "too many runs; delete some first");
  const std::string id = orphan->run();
  Adoption& adoption = adoptions[id];
  adoption.about = *orphan;
  adoption.asked = now.boot;
  effects.seeks.emplace_back(id);
  if (adoption.specification) TRY(check_specification(adoption));
  if (const Result<Hash> spec = Hash::from_raw(adoption.about.spec().manifest());
      spec && !adoption.specification && objects.has(*spec)) {
    effects.reads.push_back(*spec);
  }
  const std::vector<std::string> missing = missing_parts(adoption);
  const bool may_go_on = missing.empty() || request.partial();
  const bool is_told = adoption.heads && now.boot - adoption.told >= config.adoption_pause;
  if (!adoption.specification || !is_told || !may_go_on) {
    for (const std::string& part : missing) answer.add_missing(part);
    return reply;
  }
  const Adoption whole = std::move(adoption);
  adoptions.erase(id);
  adopt(whole);
  unclaim(whole);
  answer.set_done(true);
  for (const std::string& part : missing) answer.add_missing(part);
  *answer.mutable_run() = run_info(runs.at(id), true);
  return reply;
}

void Machine::adopt_from(const RunRecords& event) {
  const auto adoption = adoptions.find(event.run.str());
  if (adoption == adoptions.end()) return;
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

void Machine::specification_read(const FileRead& event) {
  for (auto& [id, adoption] : adoptions) {
    if (adoption.about.spec().manifest() != event.manifest.raw()) continue;
    pb::EnsembleReply specification;
    if (specification.ParseFromString(event.bytes)) adoption.specification = std::move(specification);
  }
}

void Machine::forget_adoptions() {
  std::erase_if(adoptions, [&](const auto& each) {
    if (now.boot - each.second.asked < kForgottenAfter) return false;
    unclaim(each.second);
    return true;
  });
}

// What came for it and nothing names goes in time; what is wanted after all stays.
void Machine::unclaim(const Adoption& adoption) {
  const auto leave = [&](const pb::ObjectRef& object) {
    const Hash manifest = *Hash::from_raw(object.manifest());
    if (objects.has(manifest) && !objects.is_named(manifest)) objects.leave_unclaimed(manifest);
  };
  leave(adoption.about.spec());
  for (const RunRecords::Head& head : adoption.heads.value_or(std::vector<RunRecords::Head>{}))
    leave(head.record.checkpoint());
}

// ---- What is asked of nodes ----

void Machine::visit_sought(const std::function<void(const pb::ObjectRef&, Purpose)>& visit) const {
  for (const auto& [id, adoption] : adoptions) {
    if (adoption.about.spec().bytes() <= kSpecificationBytes) visit(adoption.about.spec(), Purpose::kFile);
    for (std::uint32_t index = 0; index < adoption.about.experts(); ++index) {
      for (const RunRecords::Head* head : sought_heads(adoption, index))
        visit(head->record.checkpoint(), Purpose::kCheckpoint);
    }
  }
  for (const auto& [name, dataset] : datasets.all()) {
    if (dataset.record->ready() || !dataset.source.empty() || datasets.user_of(name) == nullptr) continue;
    for (const pb::DatasetFile& file : dataset.record->content().files())
      visit(file.object(), Purpose::kFile);
  }
}

std::optional<pb::ObjectRef> Machine::sought_object(const Hash& manifest) const {
  std::optional<pb::ObjectRef> found;
  visit_sought([&](const pb::ObjectRef& object, Purpose) {
    if (!found && object.manifest() == manifest.view()) found = object;
  });
  return found;
}

// ---- What an expert goes on from ----

std::string Machine::wrong_head(const Adoption& adoption, const RunRecords::Head& head) const {
  const StoredObject* object = objects.find(*Hash::from_raw(head.record.checkpoint().manifest()));
  if (object == nullptr) return "no connected node has given it back yet";
  const ObjectFacts& facts = object->facts;
  const bool is_its = object->checkpoint && facts.run == adoption.about.run() &&
                      facts.expert == head.record.expert() && facts.step == head.record.step() &&
                      facts.expert < adoption.about.experts();
  if (!is_its) return "its bytes are not what the record says";
  if (Epoch(facts.epoch).generation() >= generations_end())
    return text("its epoch is of generation ", Epoch(facts.epoch).generation(),
                ", beyond those that this coordinator can have begun");
  return "";
}

// Whether a node's record is known to be wrong. Every commit after the acknowledged one has a parent, no older epoch, and
// comes from no step before it; which node held the lease is not known any more.
bool Machine::is_refuted(const Adoption& adoption, const RunRecords::Head& head,
                         const RunRecords::Head* acknowledged) const {
  if (adoption.specification && head.record.step() > adoption.specification->run().spec().train().steps())
    return true;
  const StoredObject* object = objects.find(*Hash::from_raw(head.record.checkpoint().manifest()));
  if (object == nullptr) return false;
  if (!wrong_head(adoption, head).empty()) return true;
  if (acknowledged == nullptr || head.record.step() <= acknowledged->record.step()) return false;
  const ObjectFacts& facts = object->facts;
  if (facts.epoch < acknowledged->record.epoch() || !facts.parent) return true;
  const StoredObject* parent = objects.find(*facts.parent);
  return parent != nullptr && (parent->facts.run != facts.run || parent->facts.expert != facts.expert ||
                               parent->facts.step < acknowledged->record.step());
}

HeadCandidates Machine::candidates(const Adoption& adoption, std::uint32_t index) const {
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

// Those whose bytes are asked for. Of the older ones one at a time, and only once the better ones had time to come.
std::vector<const RunRecords::Head*> Machine::sought_heads(const Adoption& adoption,
                                                           std::uint32_t index) const {
  std::vector<const RunRecords::Head*> sought;
  const HeadCandidates all = candidates(adoption, index);
  const auto is_here = [&](const RunRecords::Head* head) { return wrong_head(adoption, *head).empty(); };
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
    if (is_here(head) || mending.contains(*Hash::from_raw(head->record.checkpoint().manifest()))) break;
  }
  return sought;
}

HeadChoice Machine::choose_head(const Adoption& adoption, std::uint32_t index) const {
  HeadChoice choice;
  const HeadCandidates all = candidates(adoption, index);
  const auto try_head = [&](const RunRecords::Head* head, const std::string& whose) {
    if (choice.head != nullptr) return;
    const std::string wrong = wrong_head(adoption, *head);
    if (wrong.empty()) {
      choice.head = head;
    } else if (!whose.empty()) {
      choice.missing.push_back(
          text("expert ", index, "'s checkpoint of step ", head->record.step(), ", ", whose, ": ", wrong));
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

std::vector<std::string> Machine::missing_parts(const Adoption& adoption) const {
  std::vector<std::string> missing;
  if (!adoption.specification)
    missing.emplace_back("its specification: no connected node has given it back yet");
  if (!adoption.heads) return missing;
  for (std::uint32_t index = 0; index < adoption.about.experts(); ++index)
    std::ranges::move(choose_head(adoption, index).missing, std::back_inserter(missing));
  return missing;
}

// ---- What a run is made of ----

Result<void> Machine::check_content(const pb::DatasetAdd& content, const std::string& name) const {
  const Dataset* known = datasets.find(name);
  if (content.files().empty()) {
    if (known != nullptr) return {};
    return fail(ErrorCode::kNotFound,
                text("its specification is an older version's and does not say what dataset ", name,
                     " is made of: `skerry dataset add ", name, "` of the same images first"));
  }
  TRY(check_files(content));
  if (known == nullptr) return datasets.check_room();
  if (known->digest == digest_of(content)) return {};
  return fail(ErrorCode::kConflict,
              text("dataset ", name, " exists with other content than the run was trained on: ",
                   "delete it, and the runs that use it, first"));
}

Result<void> Machine::check_specification(const Adoption& adoption) const {
  const pb::EnsembleReply& about = *adoption.specification;
  const pb::RunSpec& spec = about.run().spec();
  const std::uint32_t experts = about.dataset().partitions() + (trains_router(spec) ? 1 : 0);
  if (about.run().id() != adoption.about.run() || experts != adoption.about.experts() ||
      spec.name() != adoption.about.name())
    return fail(ErrorCode::kCorrupt, "its specification is of another run than its record");
  TRY(check_spec(spec));
  TRY(check_content(about.content(), spec.dataset()));
  if (!spec.init().empty()) TRY(check_content(about.weights(), spec.init()));
  std::uint64_t bytes = 0;
  const auto add = [&](const pb::ObjectRef& object) {
    if (!objects.has(object.manifest())) bytes += object.bytes();
  };
  for (const pb::DatasetFile& file : about.content().files()) add(file.object());
  for (const pb::DatasetFile& file : about.weights().files()) add(file.object());
  for (std::uint32_t index = 0; index < adoption.about.experts(); ++index) {
    for (const RunRecords::Head* head : sought_heads(adoption, index)) add(head->record.checkpoint());
  }
  if (!objects.has_room(bytes)) {
    return fail(ErrorCode::kExhausted,
                text("the run needs ", human_bytes(bytes), " and the coordinator's disk has ",
                     human_bytes(objects.disk_free()), " free, of which ", human_bytes(config.reserve_bytes),
                     " are kept in reserve: make room and adopt it again"));
  }
  return {};
}

void Machine::take_dataset(const pb::DatasetAdd& content) {
  if (content.files().empty() || datasets.find(content.name()) != nullptr) return;
  datasets.insert(content);
  datasets.check_ready(content.name());
}

Expert Machine::adopted_expert(const Adoption& adoption, std::uint32_t index) {
  Expert expert;
  stored::Expert& record = expert.record.change();
  record.set_run(adoption.about.run());
  record.set_index(index);
  record.set_removed(index < adoption.specification->dataset().partitions() &&
                     std::ranges::count(adoption.about.without(), index) > 0);
  if (const RunRecords::Head* head = choose_head(adoption, index).head; head != nullptr) {
    const pb::ExpertRecord& said = head->record;
    const StoredObject& object = *objects.find(*Hash::from_raw(said.checkpoint().manifest()));
    stored::Checkpoint& checkpoint = *record.add_checkpoints();
    checkpoint.set_manifest(said.checkpoint().manifest());
    checkpoint.set_manifest_bytes(object.manifest_bytes);
    checkpoint.set_bytes(object.bytes);
    checkpoint.set_step(object.facts.step);
    checkpoint.set_epoch(object.facts.epoch);
    checkpoint.set_attempt(object.facts.attempt);
    if (object.facts.parent) checkpoint.set_parent(object.facts.parent->raw());
    checkpoint.set_fingerprint(object.facts.fingerprint);
    checkpoint.set_round(said.round());
    if (roster.all().contains(head->author.str())) checkpoint.set_node(head->author.str());
    checkpoint.set_committed_unix_ms(now.unix_ms);
    checkpoint.mutable_metrics()->set_loss(said.loss());
    record.set_attempt(object.facts.attempt);
    record.set_attempt_at_commit(object.facts.attempt);
    record.set_epoch(object.facts.epoch);
    objects.name(checkpoint.manifest());
  }
  return expert;
}

std::string Machine::name_of_author(const NodeId& author) const {
  const Node* found = roster.find(author.str());
  return found == nullptr ? text("node ", author.str().substr(0, 12)) : found->record->name();
}

// Where an expert does not go on from the head that this coordinator acknowledged, a person can read it.
void Machine::tell_head(const Adoption& adoption, const Expert& expert) {
  const RunRecords::Head* const acknowledged = candidates(adoption, expert.record->index()).acknowledged;
  const RunRecords::Head* const head = choose_head(adoption, expert.record->index()).head;
  if (head == acknowledged) return;
  const std::string node = head == nullptr ? "" : name_of_author(head->author);
  const std::string from = head == nullptr
                               ? "begins anew"
                               : text("goes on from step ", head->record.step(), ", by the record of ", node);
  const std::string known = acknowledged == nullptr ? "no record of this coordinator acknowledges a step"
                                                    : text("records of this coordinator acknowledge step ",
                                                           acknowledged->record.step());
  events.tell("head_adopted", text(from, "; ", known), node, &expert, expert.step());
}

// REQUIRES: check_specification(adoption), and its heads are here as far as they are to come.
void Machine::adopt(const Adoption& adoption) {
  const pb::EnsembleReply& about = *adoption.specification;
  const std::string id = adoption.about.run();
  take_dataset(about.content());
  take_dataset(about.weights());
  Run run;
  run.record.change().set_id(id);
  *run.record.change().mutable_spec() = about.run().spec();
  *run.record.change().mutable_model() = about.run().model();
  run.record.change().set_wanted(stored::WANTED_ACTIVE);
  run.record.change().set_experts(adoption.about.experts());
  run.record.change().set_steps_target(about.run().spec().train().steps());
  run.record.change().set_created_unix_ms(about.run().created_unix_ms());
  std::uint32_t generation = meta->generation();
  std::size_t heads = 0;
  for (std::uint32_t index = 0; index < adoption.about.experts(); ++index) {
    run.experts.push_back(adopted_expert(adoption, index));
    const Expert& expert = run.experts.back();
    heads += expert.has_head() ? 1 : 0;
    const std::uint32_t begun = Epoch(expert.record->epoch()).generation();
    if (begun > meta->generation()) generation = std::max(generation, begun + 1);
  }
  for (const RunRecords::Head& head : *adoption.heads) {  // also where its bytes are not here
    const std::uint32_t begun = Epoch(head.record.epoch()).generation();
    if (head.acknowledged && begun > meta->generation() && begun < generations_end())
      generation = std::max(generation, begun + 1);
  }
  if (generation > meta->generation()) {  // nobody that has seen it said Hello yet
    meta.change().set_generation(generation);
  }
  if (run.is_all_at_target()) run.record.change().set_wanted(stored::WANTED_DONE);
  orphans.erase(id);
  Run& kept = runs.insert(std::move(run));
  for (Expert& expert : kept.experts) raise_epoch(expert);
  events.tell_run("run_adopted",
                  text("from records: ", heads, " of its ", kept.experts.size(),
                       " experts go on from a checkpoint that a node gave back"),
                  kept);
  for (const Expert& expert : kept.experts) tell_head(adoption, expert);
  unsettled = true;
  settle();  // so that the answer tells who trains
}

}  // namespace skerry::coordinator
