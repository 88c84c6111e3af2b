// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/enemy.h"

#include <utility>

#include "base/text.h"
#include "protocol/limits.h"
#include "protocol/validate.h"

namespace skerry::simulation {
namespace {

constexpr Duration kBeat = seconds(1);
constexpr double kOwn = 0.7;  // of its words: of its own lease, where it has one

}  // namespace

Enemy::Enemy(World& world, const CoordinatorMachine& coordinator, std::string name,
             pb::TokenCreated token, Dice dice)
    : world_(world),
      coordinator_(coordinator),
      name_(std::move(name)),
      identity_(identity_of(name_)),
      token_(std::move(token)),
      dice_(std::move(dice)),
      ruins_(dice_.chance(0.2)),
      incarnation_(dice_.u64() | 1) {
  world_.trace.name_node(identity_.id, name_);
  world_.key_names[identity_.x25519_key] = name_;
  world_.network.dial(name_, Endpoint::kEnrol, identity_.x25519_key, *this);
}

void Enemy::leave() {
  if (std::exchange(has_left_, true)) return;
  world_.network.hang_up(name_, false);
}

void Enemy::opened(Endpoint endpoint) {
  if (endpoint == Endpoint::kEnrol) {
    const pb::EnrolRequest request = enrol_request(identity_, name_, token_);
    world_.network.send_to_server(name_, Endpoint::kEnrol, request.SerializeAsString());
  } else {
    greet();
  }
}

void Enemy::lost(Endpoint) { greeted_ = false; }

void Enemy::received(Endpoint endpoint, const std::string& bytes) {
  if (has_left_) return;
  if (endpoint == Endpoint::kEnrol) {
    const auto reply = protocol::parse_enrol_reply(bytes);
    if (!reply || !reply->has_certificate()) return;
    world_.network.hang_up(name_, Endpoint::kEnrol);
    world_.network.dial(name_, Endpoint::kControl, identity_.x25519_key, *this);
    return;
  }
  const auto reply = protocol::parse_control_reply(bytes);
  if (!reply)
    return world_.violated("wire",
                           "the coordinator says what no node reads: " + reply.error().message);
  if (reply->has_assignment()) assignment_ = reply->assignment();
  if (reply->has_error() && reply->error().message() == coordinator::kHelloFirst) greet();
  if (!reply->has_hello()) return;
  generation_ = std::max<std::uint64_t>(generation_, reply->hello().generation());
  if (!std::exchange(greeted_, true)) live(++lives_);
}

void Enemy::live(std::uint64_t life) {
  if (has_left_ || !greeted_ || life != lives_) return;
  beat();
  pb::ControlRequest asks;
  asks.mutable_get_assignment();
  say(asks);
  for (std::uint64_t words = dice_.between(0, 4); words > 0; --words) {
    const pb::ControlRequest request = lie();
    for (std::uint64_t times = dice_.chance(0.3) ? dice_.between(2, 6) : 1; times > 0; --times)
      say(request);
  }
  if (ruins_ && dice_.chance(0.1)) use_up_attempts();
  if (dice_.chance(0.05)) flood();
  world_.timeline.after(kBeat, [this, life] { live(life); });
}

// One attempt after the other, and with some of them the lease as well.
void Enemy::use_up_attempts() {
  const About whom = about();
  for (std::uint32_t attempt = 0; attempt < 8; ++attempt) {
    pb::ControlRequest request;
    pb::EngineReport& report = *request.mutable_engine_report();
    lie_in(report, whom);
    report.set_attempt(whom.attempt + attempt);
    report.set_failure(pb::EngineEvent::FAILURE_NON_FINITE);
    report.set_gives_up(dice_.chance(0.2));
    say(request);
  }
}

// Of ever other epochs: each is refused for a reason of its own.
void Enemy::flood() {
  const About whom = about();
  for (std::uint64_t i = 0; i < 100; ++i) {
    pb::ControlRequest request;
    lie_in(*request.mutable_commit(), whom);
    request.mutable_commit()->set_epoch(i + 1);
    say(request);
  }
}

void Enemy::greet() {
  pb::ControlRequest request;
  pb::Hello& hello = *request.mutable_hello();
  *hello.mutable_version() = protocol::own_version();
  hello.set_software("another program");
  hello.set_incarnation(incarnation_);
  hello.set_generation(generation_);
  hello.set_host_label(name_);
  for (std::uint32_t slot = 0; slot < 2; ++slot) hello.add_slots()->set_index(slot);
  say(request);
}

void Enemy::beat() {
  pb::ControlRequest request;
  request.mutable_heartbeat()->set_incarnation(incarnation_);
  request.mutable_heartbeat()->set_sequence(++sequence_);
  request.mutable_heartbeat()->set_assignment_version(assignment_.version());
  say(request);
}

void Enemy::say(pb::ControlRequest request) {
  request.set_id(++last_id_);
  world_.network.send_to_server(name_, Endpoint::kControl, request.SerializeAsString());
}

// ---- Lies ----

Enemy::About Enemy::about() {
  About about;
  if (assignment_.slots_size() > 0 && dice_.chance(kOwn)) {
    const auto which = dice_.between(0, static_cast<std::uint64_t>(assignment_.slots_size()) - 1);
    const pb::SlotAssignment& slot = assignment_.slots(static_cast<int>(which));
    about = {slot.run(),     slot.expert(),    slot.epoch(),
             slot.attempt(), slot.head_step(), slot.head().manifest()};
  } else if (coordinator_.core() != nullptr) {
    const std::vector<coordinator::ExpertView> experts = coordinator_.core()->experts();
    if (!experts.empty()) {
      const coordinator::ExpertView& view = dice_.pick(experts);
      about = {view.id.run.str(), view.id.index,  view.epoch.value(),
               view.attempt,      view.head_step, view.head ? view.head->raw() : ""};
    }
  }
  if (about.run.empty() || dice_.chance(0.05)) about.run = "r-unknown";
  if (dice_.chance(0.05))
    about.expert = static_cast<std::uint32_t>(dice_.between(0, protocol::kPartitions));
  if (dice_.chance(0.1)) about.epoch += dice_.between(0, 2) - 1;
  if (dice_.chance(0.05)) about.epoch = dice_.u64();
  if (dice_.chance(0.1)) about.attempt += 1;
  return about;
}

// Up to the limit in one word of three, with characters of one byte and of two.
std::string Enemy::words(std::size_t most) {
  std::string out = dice_.chance(0.5) ? "x" : "";
  const std::uint64_t length = dice_.chance(0.3) ? most : dice_.between(0, 40);
  while (out.size() + 2 <= length) out += "\xc3\xa9";
  return out;
}

std::string Enemy::name_of_object(const About& about) {
  return dice_.chance(0.3) && !about.head.empty() ? about.head
                                                  : blake2b(text(name_, dice_.u64())).raw();
}

pb::ControlRequest Enemy::lie() {
  pb::ControlRequest request;
  const About whom = about();
  switch (dice_.between(0, 9)) {
    case 0:
      lie_in(*request.mutable_hello());
      break;
    case 1:
      lie_in(*request.mutable_heartbeat());
      break;
    case 2:
      request.mutable_get_assignment()->set_have_version(dice_.u64());
      break;
    case 3:
    case 4:
      lie_in(*request.mutable_commit(), whom);
      break;
    case 5:
      request.mutable_return_lease()->set_run(whom.run);
      request.mutable_return_lease()->set_expert(whom.expert);
      request.mutable_return_lease()->set_epoch(whom.epoch);
      request.mutable_return_lease()->set_reason(words(protocol::kReasonBytes));
      break;
    case 6:
      request.mutable_node_log()->set_request(dice_.between(0, 3));
      for (std::uint64_t lines = dice_.between(0, 3); lines > 0; --lines)
        request.mutable_node_log()->add_lines(words(protocol::kLogLineBytes));
      break;
    case 7:
      request.mutable_admin()->mutable_run_delete()->set_name(whom.run);
      break;
    default:
      lie_in(*request.mutable_engine_report(), whom);
  }
  return request;
}

void Enemy::lie_in(pb::Hello& hello) {
  *hello.mutable_version() = protocol::own_version();
  hello.mutable_version()->set_minor(static_cast<std::uint32_t>(dice_.between(0, 3)));
  if (dice_.chance(0.5)) {
    incarnation_ = dice_.u64() | 1;
    sequence_ = 0;
  }
  hello.set_incarnation(dice_.chance(0.1) ? 0 : incarnation_);
  hello.set_software(words(protocol::kLogLineBytes));
  hello.set_host_label(words(protocol::kLogLineBytes));
  hello.set_generation(generation_);
  for (std::uint64_t slots = dice_.between(0, 3); slots > 0; --slots) {
    pb::Slot& slot = *hello.add_slots();
    slot.set_index(static_cast<std::uint32_t>(dice_.between(0, protocol::kSlots - 1)));
    slot.set_device(words(protocol::kLogLineBytes));
  }
  for (std::uint64_t held = dice_.between(0, 3); held > 0; --held) {
    const About whom = about();
    pb::HeldLease& lease = *hello.add_held();
    lease.set_run(whom.run);
    lease.set_expert(whom.expert);
    lease.set_epoch(whom.epoch);
    lease.set_slot(static_cast<std::uint32_t>(dice_.between(0, protocol::kSlots - 1)));
    lease.set_step(whom.step + dice_.between(0, 50));
    lease.set_head(whom.head);
  }
}

// No replica is said to be durable: which hosts hold one is for the rules to
// know.
void Enemy::lie_in(pb::Heartbeat& heartbeat) {
  heartbeat.set_incarnation(dice_.chance(0.9) ? incarnation_ : dice_.u64());
  heartbeat.set_sequence(dice_.chance(0.9) ? ++sequence_ : dice_.u64() >> 8);
  heartbeat.set_assignment_version(dice_.chance(0.5) ? assignment_.version() : dice_.u64());
  heartbeat.set_draining(dice_.chance(0.2));
  if (dice_.chance(0.2)) heartbeat.set_leaves_in_ms(dice_.between(0, protocol::kLeavesInMs));
  heartbeat.set_no_new_work(dice_.chance(0.2));
  if (dice_.chance(0.3)) heartbeat.set_notice(words(protocol::kNoticeBytes));
  for (std::uint64_t slots = dice_.between(0, 3); slots > 0; --slots) {
    const About whom = about();
    pb::SlotStatus& status = *heartbeat.add_slots();
    status.set_slot(static_cast<std::uint32_t>(dice_.between(0, protocol::kSlots - 1)));
    status.set_run(whom.run);
    status.set_expert(whom.expert);
    status.set_epoch(whom.epoch);
    status.set_phase(static_cast<pb::SlotPhase>(dice_.between(0, pb::SlotPhase_MAX)));
    status.set_step(dice_.between(0, protocol::kSteps));
    status.set_loss(dice_.real(-1e300, 1e300));
    status.set_samples_per_second(dice_.real(0, 1e308));
  }
  for (const pb::Replica& held : assignment_.replicas()) {
    pb::ReplicaStatus& replica = *heartbeat.add_replicas();
    replica.set_manifest(held.object().manifest());
    replica.set_bytes(dice_.u64() >> 24);
  }
  for (std::uint64_t transfers = dice_.between(0, protocol::kTransfers); transfers > 0;
       --transfers) {
    pb::Transfer& transfer = *heartbeat.add_transfers();
    transfer.set_manifest(name_of_object(about()));
    transfer.set_bytes(dice_.u64() >> 20);
    transfer.set_millis(dice_.chance(0.3) ? 0 : dice_.u64() >> 24);
    for (std::uint64_t sources = dice_.between(0, protocol::kTransferSources); sources > 0;
         --sources) {
      transfer.add_sources()->set_peer(words(protocol::kRecordTextBytes));
      transfer.mutable_sources(transfer.sources_size() - 1)->set_bytes(dice_.u64() >> 20);
    }
  }
  for (std::uint64_t faults = dice_.between(0, protocol::kPeerFaults); faults > 0; --faults) {
    pb::PeerFault& fault = *heartbeat.add_faults();
    fault.set_peer(words(protocol::kRecordTextBytes));
    fault.set_manifest(name_of_object(about()));
    fault.set_kind(dice_.chance(0.5) ? pb::PeerFault::FAULT_WRONG_BYTES
                                     : pb::PeerFault::FAULT_NO_ANSWER);
  }
}

void Enemy::lie_in(pb::Commit& commit, const About& about) {
  commit.set_run(about.run);
  commit.set_expert(about.expert);
  commit.set_epoch(about.epoch);
  commit.set_attempt(about.attempt);
  commit.set_from_step(dice_.chance(0.8) ? about.step : dice_.between(0, 1000));
  commit.set_to_step(commit.from_step() + dice_.between(1, 1000));
  commit.set_parent(dice_.chance(0.8) ? about.head : name_of_object(about));
  commit.mutable_manifest()->set_manifest(name_of_object(about));
  commit.mutable_manifest()->set_manifest_bytes(dice_.between(1, protocol::kChunkBytes));
  commit.mutable_manifest()->set_bytes(dice_.u64() >> dice_.between(20, 60));
  commit.mutable_metrics()->set_loss(dice_.real(-1e300, 1e300));
  commit.set_fingerprint(words(protocol::kReasonBytes));
}

void Enemy::lie_in(pb::EngineReport& report, const About& about) {
  report.set_run(about.run);
  report.set_expert(about.expert);
  report.set_epoch(about.epoch);
  report.set_attempt(about.attempt);
  report.set_failure(
      static_cast<pb::EngineEvent::Failure>(dice_.between(0, pb::EngineEvent::Failure_MAX)));
  if (report.failure() == pb::EngineEvent::FAILURE_NON_FINITE && !ruins_ && dice_.chance(0.9))
    report.set_failure(pb::EngineEvent::FAILURE_INTERNAL);
  report.set_gives_up(dice_.chance(0.3));
  report.set_reason(words(protocol::kReasonBytes));
  for (std::uint64_t lines = dice_.between(0, 5); lines > 0; --lines)
    report.add_last_lines(words(protocol::kLogLineBytes));
}

}  // namespace skerry::simulation
