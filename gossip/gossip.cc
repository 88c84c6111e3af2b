// SPDX-License-Identifier: Apache-2.0
#include "gossip/gossip.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "base/text.h"
#include "gossip/wire.h"
#include "protocol/validate_gossip.h"

namespace skerry::gossip {
namespace {

using std::chrono::milliseconds;

constexpr std::size_t kAnswerBytes = 96 << 10;  // of records in one message
constexpr std::size_t kListedHeads = 128;       // of one bucket
constexpr std::size_t kCatchUp = 16;            // old records that were lacking: go on at once
constexpr std::size_t kFloodFactor = 16;        // times the messages that are read
constexpr std::size_t kBans = 1024;
constexpr std::size_t kReported = 256;
constexpr Duration kReportAgain = std::chrono::hours(1);
constexpr int kDialTries = 16;
constexpr int kDialsPerRound = 2;

void forget(std::map<NodeId, Duration>& until, Now now, std::size_t most) {
  std::erase_if(until, [&](const auto& each) { return each.second <= now.boot; });
  while (until.size() > most)
    until.erase(std::ranges::min_element(until, {}, [](const auto& each) { return each.second; }));
}

// A connected peer that has sent nothing since then is silent: it would take
// every digest and answer none.
Duration silent_since(const Config& config, Now now) {
  return now.boot - config.round * config.digest_rounds;
}

}  // namespace

struct Gossip::Answer {
  Peer& peer;
  pb::GossipMessage message;
  std::size_t bytes = 0;
  std::unordered_set<Position> given;
  std::unordered_set<Position> wanted;
  std::size_t caught_up = 0;
};

Gossip::Gossip(Config config, const protocol::Signer& self, Verifier& verifier, Table table,
               Now now)
    : config_(std::move(config)),
      self_(self),
      self_id_(self.node_id()),
      verifier_(verifier),
      table_(std::move(table)),
      own_(config_),
      random_(skerry::Position{.seed = config_.seed, .purpose = Purpose::kGossip}),
      next_round_(now.boot +
                  std::chrono::duration_cast<Duration>(config_.round * random_.uniform())),
      next_rotation_(now.boot + config_.rotate),
      round_(random_.below(1024)) {
  table_.for_each(now, [this](const Entry& entry) {
    if (entry.record->key.author == self_id_) own_.saw(*entry.record, random_);
  });
}

void Gossip::connected(const NodeId& peer, bool dialled, Now now) {
  if (is_shut_out(peer, now)) {
    effects_.misbehaved.push_back({peer, "is shut out"});
    return;
  }
  if (peer != verifier_.coordinator() && peers_.size() >= config_.peers_most &&
      !peers_.contains(peer)) {
    effects_.releases.push_back(peer);
    return;
  }
  peers_[peer] = {.dialled = dialled, .heard = now.boot, .digested = now.boot};
  ask_revocations(peer, peers_[peer]);
}

void Gossip::disconnected(const NodeId& peer) { peers_.erase(peer); }

bool Gossip::is_shut_out(const NodeId& peer, Now now) const {
  const auto found = banned_.find(peer);
  return (found != banned_.end() && now.boot < found->second) || table_.is_revoked(peer, now);
}

void Gossip::ban(const NodeId& peer, const std::string& reason, Now now) {
  peers_.erase(peer);
  banned_[peer] = now.boot + config_.ban;
  forget(banned_, now, kBans);
  effects_.misbehaved.push_back({peer, reason});
}

void Gossip::report(const NodeId& author, const std::string& reason, Now now) {
  forget(reported_, now, kReported);
  if (!reported_.try_emplace(author, now.boot + kReportAgain).second) return;
  effects_.reports.push_back({author, reason});
}

Result<void> Gossip::say(const pb::RecordBody& body, Now now) {
  pb::RecordBody whole = body;
  whole.set_incarnation(config_.incarnation);
  whole.set_counter(1);
  whole.set_issued_unix_ms(0);
  whole.set_lifetime_ms(protocol::kNodeLifetimeMs);
  whole.set_author(self_id_.str());
  // signed when it is due
  pb::SignedRecord wire;
  wire.set_body(whole.SerializeAsString());
  ASSIGN_OR_RETURN(const Record record, open_record(wire, verifier_.coordinator()));
  const Entry* held = table_.find(record.key, now);
  own_.say(record.key, body, held == nullptr ? nullptr : held->record.get(),
           held == nullptr ? Duration::zero() : Table::age(*held, now), now, random_);
  return {};
}

void Gossip::tick(Now now) {
  if (now.boot >= next_round_) start_round(now);
}

void Gossip::start_round(Now now) {
  ++round_;
  next_round_ = now.boot + std::chrono::duration_cast<Duration>(config_.round *
                                                                (0.9 + 0.2 * random_.uniform()));
  for (auto& [id, peer] : peers_) peer.messages = peer.given_bytes = 0;
  checked_before_ = verifier_.signatures_checked();
  table_.expire(now);
  while (!news_.empty() && news_.back().came + config_.round * config_.offer_rounds < now.boot)
    news_.pop_back();
  forget(banned_, now, kBans);
  forget(dialled_, now, kBans);
  sign_due(now);
  cut_off_revoked();
  for (const auto& [id, peer] : peers_) ask_revocations(id, peer);
  send_offers(now);
  wish_for_peers(now);
}

void Gossip::sign_due(Now now) {
  for (const pb::RecordBody& body : own_.due(now, random_)) {
    const auto wire = sign_record(body, self_, config_.certificate);
    if (!wire) continue;  // say has tried it
    const auto opened = verifier_.open(*wire);
    if (!opened) continue;
    const auto checked = verifier_.check(*opened, now.unix_ms);
    if (!checked) {
      report(self_id_, text("cannot say anything: ", checked.error().message), now);
      continue;
    }
    if (!hold(*checked, Duration::zero(), Origin::kSelf, now)) own_.say_again((*checked)->key);
  }
}

std::vector<NodeId> Gossip::other_peers() const {
  std::vector<NodeId> others;
  for (const auto& [id, peer] : peers_) {
    if (id != verifier_.coordinator()) others.push_back(id);
  }
  return others;
}

bool Gossip::is_alone(Now now) const {
  const Duration lately = silent_since(config_, now);
  return std::ranges::none_of(peers_, [&](const auto& peer) {
    return peer.first != verifier_.coordinator() && peer.second.heard >= lately;
  });
}

void Gossip::send_offers(Now now) {
  std::vector<NodeId> others = other_peers();
  const bool has_coordinator = peers_.contains(verifier_.coordinator());
  const bool alone = has_coordinator && is_alone(now);
  bool with_digest = digest_is_due_ || round_ % config_.digest_rounds == 0;
  for (std::size_t i = 0; i < config_.fanout && !others.empty(); ++i) {
    const bool digests = !alone && std::exchange(with_digest, false);
    // In turn, silent peers last: random choices could give every digest to
    // peers that never answer one.
    const auto turn = [&](const NodeId& id) {
      const Peer& peer = peers_.at(id);
      return std::pair(peer.heard < silent_since(config_, now), peer.digested);
    };
    const auto next =
        digests ? std::ranges::min_element(others, {}, turn)
                : others.begin() + static_cast<std::ptrdiff_t>(random_.below(others.size()));
    std::swap(*next, others.back());
    offer_to(others.back(), digests, now);
    others.pop_back();
  }
  // If the other peers answer, one of them has the digest by now.
  if (has_coordinator && round_ % (alone ? config_.alone_rounds : config_.coordinator_rounds) == 0)
    offer_to(verifier_.coordinator(), with_digest, now);
}

void Gossip::offer_to(const NodeId& peer, bool with_digest, Now now) {
  Send& send = effects_.sends.emplace_back();
  send.peer = peer;
  pb::HeadList& offer = *send.message.mutable_offer();
  const Duration since = now.boot - config_.round * config_.offer_rounds;
  for (const News& each : news_) {
    if (each.came < since || static_cast<std::size_t>(offer.position_size()) >= config_.offer_heads)
      break;
    add_head(offer, *each.record);
  }
  if (!with_digest) return;
  send.message.set_digest(digest());
  peers_.at(peer).digested = now.boot;
  digest_is_due_ = false;
}

std::string Gossip::digest() const { return encode_fingerprints(table_.fingerprints()); }

void Gossip::wish_for_peers(Now now) {
  std::vector<NodeId> dialled;
  std::size_t others = 0;
  for (const auto& [id, peer] : peers_) {
    if (id == verifier_.coordinator()) continue;
    ++others;
    if (peer.dialled) dialled.push_back(id);
  }
  for (int i = 0; i < kDialsPerRound && others + static_cast<std::size_t>(i) < config_.peers_wanted;
       ++i) {
    if (!dial_one(now)) break;
  }
  if (now.boot < next_rotation_) return;
  next_rotation_ = now.boot + config_.rotate;
  if (dialled.size() > config_.peers_wanted)
    effects_.releases.push_back(dialled[random_.below(dialled.size())]);
  dial_one(now);
}

bool Gossip::dial_one(Now now) {
  for (int i = 0; i < kDialTries; ++i) {
    const Entry* entry = table_.pick(random_.u64());
    if (entry == nullptr) return false;
    const Record& record = *entry->record;
    const NodeId& node = record.key.author;
    if (record.key.kind != Kind::kNode || record.body.withdrawn() ||
        record.body.node().address().empty() || node == self_id_ || peers_.contains(node) ||
        is_shut_out(node, now) || dialled_.contains(node)) {
      continue;
    }
    dialled_[node] = now.boot + config_.dial_again;
    effects_.dials.push_back({entry->record});
    return true;
  }
  return false;
}

void Gossip::received(const NodeId& peer, const pb::GossipMessage& message, Now now) {
  const auto found = peers_.find(peer);
  if (found == peers_.end()) return;
  found->second.heard = now.boot;
  if (++found->second.messages > config_.peer_messages) {
    if (found->second.messages > kFloodFactor * config_.peer_messages)
      ban(peer, "sends without end", now);
    return;
  }
  Answer answer{.peer = found->second};
  for (const pb::SignedRecord& wire : message.records()) {
    if (!take(peer, wire, answer, now)) return;
  }
  if (message.has_offer()) answer_offer(message.offer(), answer, now);
  if (!message.digest().empty()) answer_digest(message.digest(), answer, now);
  for (const pb::Listing& listing : message.listings()) {
    if (!answer_listing(listing, answer, now)) {
      ban(peer, "lists more than a bucket at once", now);
      return;
    }
  }
  for (const Position position : message.wants()) {
    for (const Entry* entry : table_.at(position, now)) give(*entry, answer, now);
  }
  if (message.has_revocations_from()) answer_recall(message.revocations_from(), answer, now);
  // A record beyond the limit was not checked: ask for it again in the next
  // round.
  const bool all_checked = verifier_.signatures_checked() - checked_before_ < config_.verifications;
  if (message.has_revocations_to() && all_checked) hear_recall(peer, message.revocations_to());
  if (answer.caught_up >= kCatchUp) answer.message.set_digest(digest());
  if (answer.message.ByteSizeLong() > 0)
    effects_.sends.push_back({peer, std::move(answer.message)});
  cut_off_revoked();
}

// RETURNS: false if the peer forged a record and was banned.
bool Gossip::take(const NodeId& peer, const pb::SignedRecord& wire, Answer& answer, Now now) {
  const auto opened = verifier_.open(wire);
  if (!opened) return true;  // of a newer version: the peer is not to blame
  const Record& record = **opened;
  const Duration age = milliseconds(wire.age_ms());
  const Verdict verdict = table_.judge(record, age, now);
  if (verdict == Verdict::kRevoked) {
    const Key revocation{
        .kind = Kind::kRevocation, .author = verifier_.coordinator(), .subject = record.key.author};
    if (const Entry* why = table_.find(revocation, now)) give(*why, answer, now);
  }
  const bool contradicts = table_.contradicts(record);
  const bool is_own = record.key.author == self_id_;
  const bool mine = is_own && own_.says(record.key);
  if (!is_held(verdict) && !contradicts && !(mine && verdict == Verdict::kTooSoon)) return true;
  if (verifier_.signatures_checked() - checked_before_ >= config_.verifications)
    return true;  // it comes again
  const auto checked = verifier_.check(*opened, now.unix_ms);
  if (!checked) {
    if (checked.error().code == ErrorCode::kCorrupt) {
      ban(peer, text("handed on what it cannot have checked: ", checked.error().message), now);
      return false;
    }
    report(record.key.author, checked.error().message, now);
    return true;
  }
  if (contradicts) {
    report(record.key.author, text("signed two records of one version: ", describe(record.key)),
           now);
  }
  if (mine && own_.overtaken(record, random_)) {
    report(self_id_,
           text(describe(record.key),
                ": a newer one than was made here is about, of an earlier start whose clock was "
                "ahead or of "
                "another process with this node's key"),
           now);
  }
  if (is_own && !mine) own_.saw(record, random_);
  if (is_held(verdict)) {
    if (age > config_.news_age) ++answer.caught_up;
    hold(*checked, age, Origin::kPeer, now);
  }
  return true;
}

bool Gossip::hold(const RecordPtr& record, Duration age, Origin origin, Now now) {
  const Table::Change change = table_.put(record, age, now, origin);
  if (!is_held(change.verdict)) return false;
  if (age <= config_.news_age) {
    news_.push_front({record, now.boot});
    if (news_.size() > 2 * config_.offer_heads) news_.pop_back();
  }
  effects_.news.push_back(record);
  if (record->key.kind == Kind::kRevocation && !record->body.withdrawn()) {
    effects_.revoked.push_back(record->key.subject);
  }
  return true;
}

void Gossip::cut_off_revoked() {
  for (const NodeId& node : effects_.revoked) peers_.erase(node);
}

void Gossip::give(const Entry& entry, Answer& answer, Now now) {
  const std::size_t bytes = entry.record->wire.ByteSizeLong();
  if (static_cast<std::size_t>(answer.message.records_size()) >= protocol::kGossipMessageRecords ||
      answer.bytes + bytes > kAnswerBytes || answer.peer.given_bytes + bytes > config_.peer_bytes ||
      !answer.given.insert(entry.position).second) {
    return;
  }
  answer.bytes += bytes;
  answer.peer.given_bytes += bytes;
  pb::SignedRecord& wire = *answer.message.add_records();
  wire = entry.record->wire;
  wire.set_age_ms(static_cast<std::uint64_t>(
      std::chrono::duration_cast<milliseconds>(Table::age(entry, now)).count()));
}

void Gossip::want(Position position, Answer& answer) {
  if (static_cast<std::size_t>(answer.message.wants_size()) >= protocol::kGossipWants) return;
  if (answer.wanted.insert(position).second) answer.message.add_wants(position);
}

void Gossip::answer_offer(const pb::HeadList& offer, Answer& answer, Now now) {
  std::vector<Position> offered(offer.position().begin(), offer.position().end());
  std::ranges::sort(offered);
  for (int i = 0; i < offer.position_size(); ++i) {
    const Table::Standing standing = table_.compare(head_at(offer, i), now);
    if (standing.lacking) want(offer.position(i), answer);
    if (!standing.behind) continue;
    for (const Entry* entry : table_.at(offer.position(i), now)) give(*entry, answer, now);
  }
  const Duration since = now.boot - config_.round * config_.answer_rounds;
  for (const News& each : news_) {
    if (each.came < since) break;
    if (std::ranges::binary_search(offered, each.record->position)) continue;
    for (const Entry* entry : table_.at(each.record->position, now)) give(*entry, answer, now);
  }
}

void Gossip::answer_digest(const std::string& digest, Answer& answer, Now now) {
  const auto theirs = decode_fingerprints(digest);
  const std::size_t start = random_.below(theirs.size());
  for (std::size_t i = 0; i < theirs.size(); ++i) {
    const std::size_t bucket = (start + i) % theirs.size();
    if (theirs[bucket] == table_.fingerprints()[bucket]) continue;
    if (static_cast<std::size_t>(answer.message.listings_size()) >= protocol::kGossipListings)
      return;
    Range range = Table::range_of_bucket(bucket);
    std::vector<const Entry*> entries = table_.in(range, now);
    if (entries.size() > kListedHeads) {
      // Another part of it each time.
      const std::size_t from = random_.below(entries.size() - kListedHeads + 1);
      if (from > 0) range.first = entries[from]->position;
      if (from + kListedHeads < entries.size())
        range.last = entries[from + kListedHeads - 1]->position;
      entries = table_.in(range, now);
    }
    pb::Listing& listing = *answer.message.add_listings();
    listing.set_first(range.first);
    listing.set_last(range.last);
    for (const Entry* entry : entries) add_head(*listing.mutable_heads(), *entry->record);
  }
}

bool Gossip::answer_listing(const pb::Listing& listing, Answer& answer, Now now) {
  if (Table::bucket_of(listing.first()) != Table::bucket_of(listing.last())) return false;
  std::unordered_set<Position> listed;
  for (int i = 0; i < listing.heads().position_size(); ++i) {
    const Head head = head_at(listing.heads(), i);
    listed.insert(head.position);
    const Table::Standing standing = table_.compare(head, now);
    if (standing.lacking) want(head.position, answer);
    if (!standing.behind) continue;
    for (const Entry* entry : table_.at(head.position, now)) give(*entry, answer, now);
  }
  for (const Entry* entry : table_.in({listing.first(), listing.last()}, now)) {
    if (!listed.contains(entry->position)) give(*entry, answer, now);
  }
  return true;
}

// ---- A restored coordinator's revocations ----

void Gossip::ask_revocations(const NodeId& peer, const Peer& asked) {
  if (!recalls_ || recalled_.contains(peer)) return;
  Send& send = effects_.sends.emplace_back();
  send.peer = peer;
  send.message.set_revocations_from(asked.recalled_to);
}

void Gossip::answer_recall(Position from, Answer& answer, Now now) {
  constexpr Position kLast = ~Position{0};
  for (const Entry* entry : table_.in({from, kLast}, now)) {
    if (entry->record->key.kind != Kind::kRevocation) continue;
    give(*entry, answer, now);
    if (answer.given.contains(entry->position)) continue;
    if (entry->position > from) answer.message.set_revocations_to(entry->position - 1);
    return;
  }
  answer.message.set_revocations_to(kLast);
}

void Gossip::hear_recall(const NodeId& peer, Position to) {
  const auto found = peers_.find(peer);
  if (!recalls_ || found == peers_.end() || to < found->second.recalled_to) return;
  if (to == ~Position{0}) {
    recalled_.insert(peer);
    return;
  }
  found->second.recalled_to = to + 1;
  ask_revocations(peer, found->second);
}

Effects Gossip::take_effects() { return std::exchange(effects_, {}); }

std::string Gossip::save(Now now) const { return save_table(table_, now, own_.incarnation()); }

std::string save_table(const Table& table, Now now, std::uint64_t incarnation) {
  pb::SavedRecords saved;
  saved.set_unix_ms(now.unix_ms);
  saved.set_incarnation(incarnation);
  table.for_each(now, [&](const Entry& entry) {
    pb::SignedRecord& wire = *saved.add_records();
    wire = entry.record->wire;
    wire.set_age_ms(static_cast<std::uint64_t>(
        std::chrono::duration_cast<milliseconds>(Table::age(entry, now)).count()));
  });
  return saved.SerializeAsString();
}

Table load_table(const std::string& bytes, Verifier& verifier, Limits limits, Now now) {
  Table table(verifier.coordinator(), limits);
  pb::SavedRecords saved;
  if (!saved.ParseFromString(bytes)) return table;
  constexpr auto kLongest = static_cast<std::int64_t>(protocol::kRecordLifetimeMs);
  const milliseconds since(
      now.unix_ms - std::clamp<std::int64_t>(saved.unix_ms(), now.unix_ms - kLongest, now.unix_ms));
  // Runs and revocations first, since the others depend on them.
  for (const bool depends : {false, true}) {
    for (const pb::SignedRecord& wire : saved.records()) {
      if (wire.age_ms() > protocol::kRecordLifetimeMs) continue;
      const auto opened = verifier.open(wire);
      if (!opened) continue;
      const Kind kind = (*opened)->key.kind;
      if (depends != (kind != Kind::kRun && kind != Kind::kRevocation)) continue;
      const auto checked = verifier.check(*opened, now.unix_ms);
      if (checked) table.put(*checked, milliseconds(wire.age_ms()) + since, now, Origin::kDisk);
    }
  }
  return table;
}

}  // namespace skerry::gossip
