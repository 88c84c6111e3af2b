// SPDX-License-Identifier: Apache-2.0
#include "coordinator/core/core.h"

#include <algorithm>

#include "base/check.h"
#include "base/text.h"
#include "coordinator/admin/admin.h"
#include "coordinator/admin/views.h"
#include "coordinator/core/machine.h"

namespace skerry::coordinator {
namespace {

constexpr Duration kTickEvery = std::chrono::milliseconds(200);
constexpr Duration kForgetEvery = std::chrono::minutes(1);

template <class... Handlers>
struct Overloaded : Handlers... {
  using Handlers::operator()...;
};
template <class... Handlers>
Overloaded(Handlers...) -> Overloaded<Handlers...>;

// ---- Views of experts: an unchanged field is kept and allocates nothing ----

void show(const Rooms& rooms, const Run& run, const Expert& expert, ExpertView& view) {
  view.id = expert.id();
  view.dollars = rooms.spending.dollars(expert);
  view.epoch = expert.epoch();
  view.attempt = expert.record->attempt();
  view.head = expert.head().empty() ? std::nullopt : std::optional(*Hash::from_raw(expert.head()));
  view.head_step = expert.step();
  if (expert.has_lease()) {
    if (!view.lease) view.lease.emplace();
    const stored::Lease& lease = expert.record->lease();
    if (view.lease->node.str() != lease.node()) view.lease->node = expert.holder();
    view.lease->slot = lease.slot();
    view.lease->more.assign(lease.more_slots().begin(), lease.more_slots().end());
    view.lease->incarnation = lease.incarnation();
    view.lease->lapsed = expert.lease->lapsed;
    view.lease->kept = expert.lease->granted_kept;
  } else {
    view.lease.reset();
  }
  view.yields = expert.lease->yield;
  view.reserved = expert.lease->reserved.has_value();
  view.copies = run.record->spec().copies();
  view.pending =
      expert.commit->pending ? std::optional(expert.commit->pending->manifest) : std::nullopt;
  view.places = expert.copies->places;
  view.stalled.resize(expert.copies->stalled.size());
  auto stalled = view.stalled.begin();
  for (const auto& [node, until] : expert.copies->stalled) *stalled++ = node;
}

}  // namespace

Effects Machine::start(Now at) {
  now = at;
  effects = {};
  started_unix_ms = now.unix_ms;
  next_tick = now.boot + kTickEvery;
  meta.change().set_starts(meta->starts() + 1);
  const std::size_t fleet = roster.start();
  events.tell(EventKind::kCoordinatorStarted,
              text("start ", meta->starts(), ", epochs of generation ", meta->generation(), ", ",
                   fleet, " nodes rostered"));
  runs.forget_deletions();
  roster.begin_recall();
  leases.end_leases_of_old_generations();
  leases.reschedule();
  finish();
  return std::move(effects);
}

Effects Machine::step(const Event& event, Now at) {
  now = at;
  effects = {};
  std::visit(Overloaded{
                 [&](const Received& e) { received(e); },
                 [&](const EnrolReceived& e) { enrol(e); },
                 [&](const TurnedAway& e) { turn_away(e); },
                 [&](const Closed& e) { roster.close(e.connection); },
                 [&](const Persisted& e) { persisted = std::max(persisted, e.batch); },
                 [&](const ObjectStored& e) { object_stored(e); },
                 [&](const ObjectFailed& e) { object_failed(e); },
                 [&](const ObjectDamaged& e) {
                   if (objects.damage(e.manifest))
                     tell_of_object(*this, EventKind::kObjectDamaged, e.manifest);
                 },
                 [&](const HeldElsewhere& e) { repair(e.manifest, e.nodes); },
                 [&](const ObjectChecked& e) {
                   objects.checked(e, e.done ? trouble_of(*this, e.manifest) : "");
                 },
                 [&](const ObjectProgress& e) {
                   datasets.progress(e);
                   leases.receives(e.manifest);
                 },
                 [&](const RecordsReceived& e) { records_heard(e); },
                 [&](const RunRecords& e) { adoptions.records_heard(e); },
                 [&](const FileRead& e) { adoptions.specification_read(e); },
                 [&](const Tick&) { tick(); },
                 [&](const LoopLag& e) {
                   // What the nodes said meanwhile is still queued: nobody is
                   // silent because we did not listen.
                   if (e.lag <= config.loop_lag) return;
                   leases.distrust_clock();
                   roster.excuse(e.lag);
                   copies.excuse(e.lag);
                 },
                 [&](const DiskFree& e) { objects.disk_measured(e.bytes); },
                 [&](const RoomForBatches& e) { lacks_room = e.lacking; },
             },
             event);
  leases.reschedule();
  if (copies.take_recount()) {
    decide_waiting();
    leases.reschedule();
  }
  finish();
  return std::move(effects);
}

void Machine::tick() {
  next_tick = now.boot + kTickEvery;
  roster.check_recall();
  spending.tick();
  leases.tick();
  if (!roster.is_recovering())
    objects.drop_unclaimed([this](const Hash& each) { return commits.is_wanted(each); });
  events.tell_counted();
  if (now.boot >= next_forgetting) {
    next_forgetting = now.boot + kForgetEvery;
    roster.forget_gone(config.forget_ms, roster.all().size());
  }
  objects.forget_verdicts();
  datasets.pump();
  copies.tick();
  copies.forget_repairs([this](const Hash& each) { return adoptions.is_sought(each); });
  for (const Hash& manifest : objects.damaged()) repair(manifest, copies.holder_of(manifest));
  adoptions.forget();
}

void Machine::finish() {
  spending.settle();
  number_batch();
  objects.drop_leaving([this](const Hash& each) { return commits.is_wanted(each); });
  roster.batch_numbered();
  leases.batch_numbered();
  effects.next = leases.next_rescheduling(next_tick);
  effects.next = roster.next_unreturned(effects.next);
}

void Machine::turn_away(const TurnedAway& event) {
  const Node* known = roster.find_key(event.key);
  if (known == nullptr) known = roster.find(event.node);
  const std::string node = known == nullptr ? "" : known->record->name();
  const std::string who = !node.empty() ? node : event.address.empty() ? "somebody" : event.address;
  events.turn_away(who, event.why, event.detail, node);
}

void Machine::enrol(const EnrolReceived& event) {
  pb::EnrolReply message;
  message.set_id(event.request.id());
  if (Result<pb::Certificate> certificate = roster.enrol(event)) {
    *message.mutable_certificate() = *certificate;
  } else {
    message.mutable_error()->set_code(to_string(certificate.error().code));
    message.mutable_error()->set_message(certificate.error().message);
    turn_away({event.key, event.address, "enrol: refused", certificate.error().message, {}});
  }
  const bool is_refused = message.has_error();
  effects.sends.push_back({event.connection, Endpoint::kEnrol, std::move(message), 0});
  if (lacks_room && is_refused) send_at_once();
}

void Machine::records_heard(const RecordsReceived& event) {
  constexpr char kWhy[] =
      "as a record of this coordinator says, which is newer than the state that was restored";
  for (const NodeId& id : event.revoked) {
    Node* node = roster.find(id);
    if (node == nullptr) {
      roster.revoke_unknown(id, kWhy);
    } else if (!node->record->revoked()) {
      revoke(*this, *node, kWhy);
    }
  }
  roster.gave_back(event.recalled);
  adoptions.hear_orphans(event.runs);
  roster.check_recall();
}

void Machine::received(const Received& event) {
  const auto refuse = [&](ErrorCode code, const std::string& why) {
    reply_error(event.connection, event.request.id(), fail(code, why));
  };
  Node* const known = roster.find_key(event.key);
  const pb::CertificateBody* const readmitted = roster.find_readmitted(event.key);
  const bool is_revoked = known != nullptr && known->record->revoked();
  if (recalls() && (known != nullptr || readmitted != nullptr)) {
    // What it has seen counts already: nothing may be granted below it
    // afterwards.
    if (!is_revoked && event.request.has_hello())
      leases.go_beyond(known == nullptr ? readmitted->name() : known->record->name(),
                       event.request.hello().generation());
    refuse(ErrorCode::kUnavailable, kRecalling);
    return;
  }
  if (known == nullptr || is_revoked) {
    refuse(ErrorCode::kUnauthorised, known == nullptr
                                         ? "this key is not rostered: join with a token first"
                                         : "this key is revoked");
    turn_away({event.key, event.address, "control: its key is not known", {}, {}});
    effects.disconnects.push_back(event.connection);
    return;
  }
  Node& node = *known;
  if (event.request.body_case() == pb::ControlRequest::kHello) {
    hello(node, event);
    return;
  }
  const auto peer = roster.peers().find(event.connection);
  if (peer == roster.peers().end() || peer->second != node.id()) {
    refuse(ErrorCode::kConflict, kHelloFirst);
    return;
  }
  if (node.is_node() && node.session->connection != event.connection) {
    refuse(ErrorCode::kConflict, kHelloFirst);
    return;
  }
  dispatch(node, event);
}

void Machine::dispatch(Node& node, const Received& event) {
  using Body = pb::ControlRequest;
  const Body& request = event.request;
  if (request.body_case() == Body::BODY_NOT_SET) {
    reply_error(event.connection, request.id(),
                fail(ErrorCode::kInvalid, "the request asks for nothing this version knows"));
    return;
  }
  if (request.body_case() == Body::kAdmin) {
    admin(node, event);
    return;
  }
  if (!node.is_node()) {
    reply_error(event.connection, request.id(),
                fail(ErrorCode::kUnauthorised, "only a node may say this"));
    turn_away({event.key, event.address, "control: said what only a node may say", {}, {}});
    return;
  }
  switch (request.body_case()) {
    case Body::kHeartbeat:
      heartbeat(node, event);
      break;
    case Body::kGetAssignment: {
      pb::ControlReply message;
      message.set_id(request.id());
      *message.mutable_assignment() = leases.assignment_of(node);
      reply(event.connection, std::move(message));
      break;
    }
    case Body::kCommit:
      commits.commit(node, event);
      if (Expert* expert =
              runs.find_expert(RunId(request.commit().run()), request.commit().expert()))
        leases.end_finished(*expert);
      break;
    case Body::kReturnLease:
      leases.return_lease(node, request.return_lease());
      acknowledge(event.connection, request.id());
      break;
    case Body::kEngineReport:
      leases.engine_report(node, request.engine_report());
      acknowledge(event.connection, request.id());
      break;
    case Body::kNodeLog:
      roster.keep_log(node, request.node_log());
      acknowledge(event.connection, request.id());
      break;
    case Body::kHello:
    case Body::kAdmin:
    case Body::BODY_NOT_SET:
      SKERRY_CHECK(false, "handled above");
  }
}

// ---- The facade -------------------------------------------------------------

Core::Core(std::unique_ptr<Machine> machine) : machine_(std::move(machine)) {}
Core::~Core() = default;

Result<std::unique_ptr<Core>> Core::load(const Config& config, Rng& rng, const Authority& authority,
                                         std::span<const KeyValue> state, Now now) {
  TRY(config.check());
  auto machine = std::make_unique<Machine>(config, rng, authority);
  machine->now = now;
  TRY(machine->load(state));
  return std::unique_ptr<Core>(new Core(std::move(machine)));
}

Effects Core::start(Now now) { return machine_->start(now); }
Effects Core::step(const Event& event, Now now) { return machine_->step(event, now); }

FirstStart Core::first_start(const FirstAdmin& admin, Now now, Effects& effects) {
  Machine& machine = *machine_;
  SKERRY_CHECK(is_empty(), "a first start on a state that is none");
  machine.now = now;
  machine.effects = {};
  FirstStart first;
  first.certificate =
      machine.roster
          .admit(admin.node, admin.ed25519_key, admin.x25519_key, pb::ROLE_ADMIN, admin.name)
          .record->certificate();
  constexpr std::uint32_t kUses = 100;
  constexpr std::uint64_t kWeek = 7ULL * 86400;
  first.token = machine.roster.make_token(pb::ROLE_NODE, kUses, kWeek);
  machine.finish();
  effects = std::move(machine.effects);
  return first;
}

bool Core::is_empty() const { return machine_->roster.all().empty(); }
std::vector<NamedObject> Core::objects() const { return coordinator::named_objects(*machine_); }

bool Core::may_read(const NodeId& node, const Hash& manifest) const {
  const Node* found = machine_->roster.find(node);
  return found != nullptr && !found->record->revoked() && !machine_->recalls() &&
         coordinator::may_read(*machine_, *found, manifest);
}

std::vector<Hash> Core::lost_objects() const { return coordinator::lost_objects(*machine_); }

std::optional<NodeId> Core::node_of_key(const std::string& key) const {
  if (const pb::CertificateBody* readmitted = machine_->roster.find_readmitted(key))
    return NodeId(readmitted->node_id());
  const Node* node = machine_->roster.find_key(key);
  if (node == nullptr || node->record->revoked()) return std::nullopt;
  return node->id();
}

std::vector<ExpertView> Core::experts() const {
  std::vector<ExpertView> views;
  experts(views);
  return views;
}

void Core::experts(std::vector<ExpertView>& views) const {
  std::size_t count = 0;
  for (const auto& [id, run] : machine_->runs.all()) count += run.experts.size();
  views.resize(count);
  auto view = views.begin();
  for (const auto& [id, run] : machine_->runs.all()) {
    for (const Expert& expert : run.experts) show(*machine_, run, expert, *view++);
  }
}

std::vector<RunFacts> Core::run_facts() const { return coordinator::run_facts(*machine_); }
std::vector<NodeId> Core::revoked() const { return coordinator::revoked(*machine_); }
std::set<RunId> Core::deleted_runs() const {
  std::set<RunId> ids;
  for (const auto& [id, run] : machine_->runs.deleted()) ids.insert(id);
  return ids;
}
bool Core::recalls() const { return machine_->recalls(); }
std::uint64_t Core::last_version() const { return machine_->roster.last_version(); }
std::uint64_t Core::last_batch() const { return machine_->batch; }
std::uint64_t Core::persisted_batch() const { return machine_->persisted; }

}  // namespace skerry::coordinator
