// SPDX-License-Identifier: Apache-2.0
#include "protocol/testing/fake_transport.h"

#include <algorithm>

#include "base/check.h"
#include "base/text.h"
#include "protocol/testing/fake_network.h"

namespace skerry::protocol {
namespace {

constexpr int kToServer = 0;
constexpr Duration kHeldRetry =
    std::chrono::milliseconds(50);  // a stream sends again what a cut held up

}  // namespace

void FakeNetwork::State::at(Duration due, std::function<void()> action) {
  events.emplace(std::pair{std::max(due, now), ++events_made}, std::move(action));
}

void FakeNetwork::State::run_due() {
  while (!events.empty() && events.begin()->first.first <= now) {
    const auto action = std::move(events.begin()->second);
    events.erase(events.begin());
    action();
  }
}

void FakeNetwork::State::pass(Duration timeout, const std::function<bool()>& satisfied) {
  const Duration deadline = timeout < Duration::zero() || timeout > Duration::max() - now
                                ? Duration::max()
                                : now + timeout;
  run_due();
  while (!satisfied() && now < deadline) {
    if (background && !in_background) {
      in_background = true;
      background();
      in_background = false;
      if (satisfied()) return;
    }
    const Duration next = events.empty() ? Duration::max() : events.begin()->first.first;
    if (next == Duration::max() && deadline == Duration::max()) return;  // nothing will ever come
    now = std::max(now, std::min(next, deadline));
    run_due();
  }
}

Duration FakeNetwork::State::delay() {
  const auto spread = static_cast<double>((faults.delay_max - faults.delay_min).count());
  return faults.delay_min + Duration(static_cast<std::int64_t>(spread * random.uniform()));
}

FakeLink* FakeNetwork::State::link(const std::string& id) {
  const auto found = links.find(id);
  return found == links.end() ? nullptr : &found->second;
}

FakeLink& FakeNetwork::State::open(FakeServer& server, FakeClient& client, Endpoint endpoint,
                                   const std::string& public_key) {
  const std::string id = text("link-", ++links_made);
  FakeLink& made = links[id];
  made.connection = {endpoint, id};
  made.public_key = public_key;
  made.server = &server;
  made.client = &client;
  return made;
}

void FakeNetwork::State::end(const std::string& id) {
  const auto found = links.find(id);
  if (found == links.end()) return;
  const FakeLink link = std::move(found->second);
  links.erase(found);
  if (link.named && link.server != nullptr)
    link.server->take(Closed{link.connection, link.public_key});
  if (link.client != nullptr) link.client->on_lost(link);
}

void FakeNetwork::State::end_all(const std::function<bool(const FakeLink&)>& which) {
  std::vector<std::string> ended;
  for (const auto& [id, link] : links) {
    if (which(link)) ended.push_back(id);
  }
  for (const std::string& id : ended) end(id);
}

void FakeNetwork::State::carry(const std::string& id, int direction, std::string bytes) {
  FakeLink& link = *this->link(id);
  if (chance(faults.reset)) return end(id);
  if (chance(faults.loss)) {
    if (!faults.silent_loss) end(id);
    return;
  }
  const int copies = chance(faults.duplicate) ? 2 : 1;
  for (int i = 0; i < copies; ++i) {
    Duration due = now + delay();
    if (chance(faults.reorder)) {
      due += Duration(static_cast<std::int64_t>(10 * random.uniform() *
                                                static_cast<double>(faults.delay_max.count())));
    } else {
      due = std::max(due, link.last[direction]);
      link.last[direction] = due;
    }
    ++link.waiting[direction];
    at(due, [this, id, direction, bytes] { arrive(id, direction, bytes); });
  }
}

void FakeNetwork::State::arrive(const std::string& id, int direction, const std::string& bytes) {
  FakeLink* link = this->link(id);
  if (link == nullptr) return;
  if (cut.contains(link->public_key)) {
    at(now + kHeldRetry, [this, id, direction, bytes] { arrive(id, direction, bytes); });
  } else if (direction == kToServer) {
    link->named = true;
    link->server->take(Incoming{link->connection, link->public_key, "fake", bytes});
  } else {
    link->client->take(*link, bytes);
  }
}

FakeServer* FakeNetwork::State::server_of(const std::string& key) const {
  const auto found = servers.find(key);
  return found == servers.end() ? nullptr : found->second;
}

FakeNetwork::FakeNetwork(std::uint64_t seed) : state_(std::make_shared<State>(seed)) {}
FakeNetwork::~FakeNetwork() = default;

std::unique_ptr<ServerTransport> FakeNetwork::make_server(const Identity& identity) {
  return std::make_unique<FakeServer>(state_, identity);
}

std::unique_ptr<ClientTransport> FakeNetwork::make_client(const Identity& identity,
                                                          std::string coordinator_key) {
  auto server_key = x25519_of(coordinator_key);
  SKERRY_CHECK(server_key.has_value(), "the coordinator's key is one");
  return std::make_unique<FakeClient>(state_, identity, *server_key);
}

void FakeNetwork::set_faults(const Faults& faults) { state_->faults = faults; }

void FakeNetwork::partition(const std::string& public_key, bool cut) {
  if (!cut) {
    state_->cut.erase(public_key);
    return;
  }
  if (!state_->cut.insert(public_key).second) return;
  // Heartbeats of the transport end what stays silent; a cut that heals in time
  // costs nothing.
  State* state = state_.get();
  std::vector<std::string> held;
  for (const auto& [id, link] : state->links) {
    if (link.public_key == public_key) held.push_back(id);
  }
  state->at(state->now + kSilenceDetection, [state, public_key, held] {
    if (!state->cut.contains(public_key)) return;
    for (const std::string& id : held) state->end(id);
  });
}

void FakeNetwork::reset(const std::string& public_key) {
  state_->end_all([&](const FakeLink& link) { return link.public_key == public_key; });
}

Duration FakeNetwork::now() const { return state_->now; }

Duration FakeNetwork::next_due() const {
  return state_->events.empty() ? Duration::max() : state_->events.begin()->first.first;
}

void FakeNetwork::advance(Duration by) {
  const Duration end = state_->now + by;
  while (next_due() <= end) {
    state_->now = std::max(state_->now, next_due());
    state_->run_due();
  }
  state_->now = end;
}

void FakeNetwork::set_background(std::function<void()> background) {
  state_->background = std::move(background);
}

}  // namespace skerry::protocol
