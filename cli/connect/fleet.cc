// SPDX-License-Identifier: Apache-2.0
#include "cli/connect/fleet.h"

#include <poll.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/text.h"
#include "cli/connect/object_transfer.h"
#include "cli/connect/peer_memory.h"
#include "gossip/gossip.h"
#include "gossip/router_parts.h"
#include "protocol/context.h"
#include "protocol/peer_network.h"
#include "protocol/validate.h"
#include "protocol/zmq_transport.h"

namespace skerry::cli {
namespace {

using protocol::Endpoint;

constexpr Duration kLongestPoll = std::chrono::milliseconds(100);
constexpr Duration kRound = std::chrono::milliseconds(300);
constexpr Duration kAnswerWithin = std::chrono::seconds(15);
constexpr Duration kQuiet = std::chrono::seconds(3);
constexpr Duration kRateOver = std::chrono::seconds(2);
constexpr Duration kSeekEvery = std::chrono::seconds(2);
constexpr std::size_t kKeyDigits = 64;

gossip::Config config_of(const protocol::Context& context, Now now) {
  gossip::Config config;
  config.coordinator_key = context.coordinator_key;
  config.certificate = context.certificate;
  config.incarnation = static_cast<std::uint64_t>(now.unix_ms);
  config.seed = static_cast<std::uint64_t>(now.boot.count());
  config.round = kRound;
  config.digest_rounds = 1;
  config.alone_rounds = 1;
  config.coordinator_rounds = 1;
  config.peers_wanted = 0;
  return config;
}

// Where what comes is thrown away.
class NoChunkStore final : public exchange::ChunkStore {
 public:
  Result<std::vector<Hash>> open(const storage::NamedManifest&,
                                 const std::vector<std::string>&) override {
    return std::vector<Hash>();
  }
  Result<void> write(const Hash&, const Hash&, std::string_view) override { return {}; }
  Result<void> seal(const Hash&) override { return {}; }
  Result<std::string> read(const Hash&, const Hash&) override { return nothing(); }
  Result<void> find(const Hash&) override { return nothing(); }

 private:
  static Error nothing() { return fail(ErrorCode::kNotFound, "nothing is offered here"); }
};

// What gossip and a transfer share; it is made before ObjectTransfer's peers.
struct FleetGossip {
  FleetGossip(protocol::Identity own, const protocol::Context& context, const std::string& saved,
              Now now)
      : identity(std::move(own)),
        certificate(context.certificate),
        verifier(context.coordinator_key),
        gossip(config_of(context, now), identity, verifier,
               gossip::load_table(saved, verifier, {}, now), now) {}
  const protocol::Identity identity;
  const pb::Certificate certificate;
  gossip::Verifier verifier;
  gossip::Gossip gossip;
};

class RealFleet final : public Fleet, private FleetGossip, private ObjectTransfer {
 public:
  RealFleet(protocol::Identity own, const protocol::Context& context,
            const std::string& context_path, std::shared_ptr<void> sockets, const Clock& clock)
      : FleetGossip(std::move(own), context, PeerMemory(context_path).read(), clock.now()),
        ObjectTransfer(clock, nullptr, &gossip, &certificate),
        memory_(context_path),
        sockets_(std::move(sockets)),
        network_({.self = identity.node_id(),
                  .coordinator_key = context.coordinator_key,
                  .server = nullptr,
                  .make_client =
                      [this](const std::string& url, const std::string& key) {
                        return protocol::make_zmq_peer_client(identity, url, key, sockets_);
                      }},
                 clock) {}

  Result<void> start(const protocol::Context& context, const std::string& from) {
    if (!from.empty()) {
      ASSIGN_OR_RETURN(first_, parse_node_address(from, table(), now()));
      return network_.dial(first_->url, first_->key);
    }
    ASSIGN_OR_RETURN(coordinator_, protocol::make_zmq_client(
                                       identity, {context.endpoints, context.coordinator_key}));
    coordinator_->dial(Endpoint::kBlob);
    return {};
  }

  const gossip::Table& table() const override { return gossip.table(); }
  Now now() const override { return clock_.now(); }

  Result<void> learn(const std::function<bool()>& enough) override {
    const Duration until = now().boot + kAnswerWithin;
    while (!enough()) {
      TRY(turn());
      const Duration at = now().boot;
      if (!reached_ && at >= until) return nobody();
      if (reached_ && at >= std::max(*reached_, news_at_) + kQuiet) break;
    }
    memory_.write(gossip::save_table(table(), now()));
    return {};
  }

  Result<void> fetch(const std::vector<WantedObject>& wanted, exchange::ChunkStore& chunk_store,
                     const Shown& shown) override {
    const Use use(*this, chunk_store);
    std::map<Hash, std::set<NodeId>> asked;
    std::size_t started = 0;
    Duration seek_at{};
    while (completed() < wanted.size()) {
      while (started < wanted.size() && started < completed() + kObjectsAtOnce) {
        const WantedObject& next = wanted[started++];
        asked[next.object] = seek(next.object);
        if (asked[next.object].empty()) {
          return fail(
              ErrorCode::kUnavailable,
              text("no node that can be dialled says that it holds ", next.object.short_hex()));
        }
        const std::set<NodeId>& from = asked[next.object];
        peers_.fetch({next.object, next.manifest_bytes, {from.begin(), from.end()}, next.parts});
      }
      if (now().boot >= seek_at) {
        seek_at = now().boot + kSeekEvery;
        for (auto& [object, from] : asked) seek_further(object, from);
      }
      TRY(turn());
      if (failure()) return *failure();
      show(wanted, shown);
    }
    return {};
  }

  Result<double> bytes_per_second(const gossip::Record& node, const Hash& object) override {
    const NodeId& id = node.key.author;
    if (!network_.is_connected(id)) {
      TRY(network_.dial(node.body.node().address(), gossip::certified(node).ed25519_key()));
    }
    NoChunkStore nowhere;
    const Use use(*this, nowhere);
    peers_.fetch({object, 0, {id}, {}});
    std::optional<Duration> begun;
    Duration until = now().boot + kAnswerWithin;
    while (completed() == 0 && !failure() && now().boot < until) {
      TRY(turn());
      if (begun || !progress_.contains(object)) continue;
      begun = now().boot;  // the manifest is here
      until = *begun + kRateOver;
    }
    peers_.cancel(object);
    if (failure()) return *failure();
    if (!begun) return fail(ErrorCode::kUnavailable, "the node does not answer");
    const std::chrono::duration<double> took = now().boot - *begun;
    return static_cast<double>(progress_[object].bytes) / std::max(took.count(), 1e-3);
  }

 private:
  Error nobody() const {
    if (!refusal_.empty()) return fail(ErrorCode::kUnauthorised, refusal_);
    return fail(ErrorCode::kUnavailable,
                first_ ? text("no answer from the node at ", first_->url,
                              ": is it running, may it be dialled, and is that its key?")
                       : "the coordinator does not answer; name a node by --from HOST:PORT#KEY");
  }

  // Who holds it and can be reached, dialled where that has not happened.
  std::set<NodeId> seek(const Hash& object) {
    std::set<NodeId> found;
    for (const gossip::Holder& holder : gossip::holders_of(table(), object.raw(), now())) {
      if (!network_.is_connected(holder.node)) {
        if (holder.address.empty()) continue;
        [[maybe_unused]] const Result<void> dialled =
            network_.dial(holder.address, gossip::certified(*holder.record).ed25519_key());
      }
      found.insert(holder.node);
    }
    return found;
  }
  void seek_further(const Hash& object, std::set<NodeId>& known) {
    if (!peers_.is_fetching(object)) return;
    std::vector<NodeId> fresh;
    for (const NodeId& peer : seek(object)) {
      if (known.insert(peer).second) fresh.push_back(peer);
    }
    if (!fresh.empty()) peers_.fetch({object, 0, std::move(fresh), {}});
  }

  // ---- One turn of the loop ----

  Result<void> turn() {
    const bool busy = network_.poll([&](protocol::PeerEvent event) { on_peer(std::move(event)); });
    work();
    const Duration due = std::max(peers_.wake_at() - now().boot, Duration{});
    const Duration timeout = busy ? Duration{} : std::min(due, kLongestPoll);
    const std::vector<int> descriptors = network_.descriptors();
    if (coordinator_) {
      const auto polled = coordinator_->poll(
          timeout, descriptors,
          [&](protocol::ClientEvent event) { on_coordinator(std::move(event)); });
      if (!polled) return polled.error();
      return {};
    }
    std::vector<pollfd> items;
    for (const int fd : descriptors) items.push_back({fd, POLLIN, 0});
    ::poll(items.data(), items.size(),
           static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(timeout).count()));
    return {};
  }

  void on_peer(protocol::PeerEvent event) {
    if (const auto* connected = std::get_if<protocol::PeerConnected>(&event)) {
      peers_.connected(connected->peer, true);
    } else if (auto* message = std::get_if<protocol::PeerMessage>(&event)) {
      received(message->peer, std::move(message->message));
    } else if (const auto* gone = std::get_if<protocol::PeerGone>(&event)) {
      peers_.disconnected(gone->peer);
    } else {
      refusal_ = text("the node is not of this coordinator: ",
                      std::get<protocol::PeerTurnedAway>(event).why);
    }
  }

  void on_coordinator(protocol::ClientEvent event) {
    const NodeId& coordinator = verifier.coordinator();
    if (std::holds_alternative<protocol::Opened>(event)) {
      peers_.connected(coordinator, true);
    } else if (std::holds_alternative<protocol::Lost>(event)) {
      peers_.disconnected(coordinator);
    } else if (const auto* refused = std::get_if<protocol::Refused>(&event);
               refused != nullptr && refused->own_key) {
      refusal_ = "the coordinator does not accept this context's key";
    } else if (const auto* message = std::get_if<protocol::Received>(&event)) {
      Result<pb::BlobMessage> parsed = protocol::parse_blob_message(message->bytes);
      if (parsed) received(coordinator, std::move(*parsed));
    }
  }

  void received(const NodeId& peer, pb::BlobMessage message) {
    if (!reached_ && message.has_hello() && protocol::knows_gossip(message.hello().version()))
      reached_ = now().boot;
    peers_.received(peer, std::move(message));
  }

  // peer::Owner
  Result<void> send(const NodeId& peer, std::string_view bytes) override {
    return peer == verifier.coordinator() ? coordinator_->send(Endpoint::kBlob, bytes)
                                          : network_.send(peer, bytes);
  }
  void gossiped(const gossip::Effects& effects) override {
    if (!effects.news.empty()) news_at_ = now().boot;
    for (const gossip::Misbehaved& each : effects.misbehaved) {
      network_.close(each.peer);
      peers_.disconnected(each.peer);
    }
  }

  const PeerMemory memory_;
  const std::shared_ptr<void> sockets_;
  protocol::PeerNetwork network_;
  std::unique_ptr<protocol::ClientTransport> coordinator_;
  std::optional<NodeAddress> first_;
  std::optional<Duration> reached_;
  Duration news_at_{};
  std::string refusal_;
};

bool is_hex(const std::string& text, std::size_t digits) {
  return text.size() == digits && from_hex(text).has_value();
}

const gossip::Record* find_node(const gossip::Table& known, const std::string& id_or_name,
                                Now now) {
  const gossip::Record* found = nullptr;
  known.for_each(now, [&](const gossip::Entry& entry) {
    const gossip::Record& record = *entry.record;
    if (record.key.kind != gossip::Kind::kNode || record.body.withdrawn()) return;
    if (record.key.author.str() == id_or_name || gossip::certified(record).name() == id_or_name)
      found = &record;
  });
  return found;
}

}  // namespace

Result<NodeAddress> parse_node_address(const std::string& words, const gossip::Table& known,
                                       Now now) {
  const std::size_t mark = words.rfind('#');
  const std::string who = mark == std::string::npos ? words : words.substr(mark + 1);
  if (mark != std::string::npos && is_hex(who, kKeyDigits)) {
    ASSIGN_OR_RETURN(const protocol::HostPort at, protocol::parse_host_port(words.substr(0, mark)));
    return NodeAddress{protocol::tcp_url(at.host, at.port), *from_hex(who)};
  }
  const gossip::Record* const node = find_node(known, who, now);
  if (node == nullptr) {
    return fail(ErrorCode::kNotFound,
                text("no node \"", who.substr(0, kKeyDigits),
                     "\" is remembered here: give HOST:PORT#KEY, as `skerry peer list` ",
                     "prints it, or run `skerry peer list` while the coordinator or another node "
                     "can be reached"));
  }
  const std::string key = gossip::certified(*node).ed25519_key();
  if (mark != std::string::npos) {
    ASSIGN_OR_RETURN(const protocol::HostPort at, protocol::parse_host_port(words.substr(0, mark)));
    return NodeAddress{protocol::tcp_url(at.host, at.port), key};
  }
  if (node->body.node().address().empty()) {
    return fail(ErrorCode::kUnavailable, text(who, " cannot be dialled: it only dials out"));
  }
  return NodeAddress{node->body.node().address(), key};
}

Result<std::unique_ptr<Fleet>> open_fleet(const std::string& context_path, const std::string& from,
                                          const Clock& clock) {
  ASSIGN_OR_RETURN(const protocol::Context context, protocol::read_context(context_path));
  ASSIGN_OR_RETURN(protocol::Identity identity, protocol::identity_of(context, context_path));
  ASSIGN_OR_RETURN(auto sockets, protocol::share_zmq_context(protocol::kPeersMost));
  auto fleet = std::make_unique<RealFleet>(std::move(identity), context, context_path,
                                           std::move(sockets), clock);
  TRY(fleet->start(context, from));
  return std::unique_ptr<Fleet>(std::move(fleet));
}

}  // namespace skerry::cli
