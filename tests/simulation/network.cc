// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/network.h"

#include <algorithm>

#include "base/text.h"

namespace skerry::simulation {
namespace {

constexpr Duration kRedialFirst = milliseconds(100);
constexpr Duration kRedialLast = seconds(2);
constexpr double kLateCopies = 0.3;  // of doubled messages
constexpr Duration kLatest = seconds(10);
// The transport's own heartbeats notice a dead link after about this long.
constexpr Duration kSilenceDetected = seconds(4);

}  // namespace

bool is_gossip(std::string_view blob_message) { return blob_message.starts_with('\x32'); }
bool brings_chunk(std::string_view blob_message) { return blob_message.starts_with('\x12'); }

void Network::server_up(NetworkServer& server) { server_ = &server; }

void Network::server_down() {
  server_ = nullptr;
  std::vector<std::uint64_t> open;
  for (auto& [number, connection] : connections_) {
    connection.server_open = false;
    by_server_name_.erase(connection.server_name);
    if (connection.client_open) open.push_back(number);
  }
  for (const std::uint64_t number : open) {
    const Weather& weather = weather_[connections_.at(number).address];
    const Duration learns = weather.to_client_cut
                                ? kSilenceDetected
                                : dice_.duration(weather.delay_min, weather.delay_max);
    timeline_.after(learns, [this, number] { tell_client(number); });
  }
}

Network::Socket* Network::socket(const Place& place, std::uint64_t number) {
  const auto found = sockets_.find(place);
  return found == sockets_.end() || found->second.number != number ? nullptr : &found->second;
}

void Network::dial(const std::string& address, Endpoint endpoint, const std::string& key,
                   NetworkClient& client) {
  const Place place{address, endpoint};
  if (sockets_.contains(place)) return;
  Socket& made = sockets_[place] = {address, endpoint, key, &client, next_number_++, 0, 0, false};
  dial_later(made, dice_.duration(milliseconds(1), milliseconds(20)));
}

void Network::dial_later(Socket& socket, Duration delay) {
  timeline_.after(delay, [this, place = Place{socket.address, socket.endpoint},
                          number = socket.number] { try_dial(place, number); });
}

void Network::try_dial(const Place& place, std::uint64_t number) {
  Socket* dialler = socket(place, number);
  if (dialler == nullptr || dialler->connection != 0 || dialler->in_handshake) return;
  const Weather& weather = weather_[place.first];
  const Duration wait = std::min(kRedialFirst * (1U << std::min(dialler->dials, 8U)), kRedialLast);
  ++dialler->dials;
  if (server_ == nullptr || weather.to_server_cut || weather.to_client_cut) {
    dial_later(*dialler, wait + dice_.duration({}, wait / 2));
    return;
  }
  if (!server_->admits(place.second, dialler->key)) {
    dial_later(*dialler, wait + dice_.duration({}, wait / 2));
    dialler->client->refused(place.second);
    return;
  }
  if (handshake_time_ == Duration{}) return open(place, number);
  dialler->in_handshake = true;
  handshakes_until_ = std::max(handshakes_until_, timeline_.now()) + handshake_time_;
  timeline_.at(handshakes_until_, [this, place, number] {
    Socket* waiting = socket(place, number);
    if (waiting == nullptr) return;
    waiting->in_handshake = false;
    if (server_ == nullptr) return dial_later(*waiting, kRedialFirst);
    open(place, number);
  });
}

void Network::open(const Place& place, std::uint64_t number) {
  Socket* dialler = socket(place, number);
  const std::uint64_t connection = next_number_++;
  const ConnectionId name = text("c", connection);
  connections_[connection] = {
      .address = place.first, .endpoint = place.second, .key = dialler->key, .server_name = name};
  by_server_name_[name] = connection;
  dialler->connection = connection;
  dialler->dials = 0;
  trace_.add(place.first, "opened");
  dialler->client->opened(place.second);
}

void Network::hang_up(const std::string& address, bool silent) {
  for (const Endpoint endpoint : protocol::kAllEndpoints) {
    const auto found = sockets_.find({address, endpoint});
    if (found == sockets_.end()) continue;
    const std::uint64_t number = found->second.connection;
    sockets_.erase(found);
    if (number == 0) continue;
    Connection& connection = connections_.at(number);
    connection.client_open = false;
    const Weather& weather = weather_[address];
    const bool unheard = silent || weather.to_server_cut;
    const Duration learns = dice_.duration(weather.delay_min, weather.delay_max);
    if (!unheard) timeline_.after(learns, [this, number] { tell_server(number); });
  }
}

void Network::hang_up(const std::string& address, Endpoint endpoint) {
  const auto found = sockets_.find({address, endpoint});
  if (found == sockets_.end()) return;
  const std::uint64_t number = found->second.connection;
  sockets_.erase(found);
  if (number == 0) return;
  connections_.at(number).client_open = false;
  timeline_.after(milliseconds(1), [this, number] { tell_server(number); });
}

template <class Deliver>
void Network::carry(const Weather& weather, bool cut, Duration& last, Deliver deliver) {
  if (cut || dice_.chance(weather.loss)) return;
  const unsigned copies = dice_.chance(weather.duplicate) ? 2 : 1;
  for (unsigned copy = 0; copy < copies; ++copy) {
    Duration when = timeline_.now() + dice_.duration(weather.delay_min, weather.delay_max);
    if (copy > 0 && dice_.chance(kLateCopies)) {
      when += dice_.duration({}, kLatest);
    } else if (dice_.chance(weather.reorder)) {
      when += dice_.duration({}, 10 * weather.delay_max);
    } else {
      when = last = std::max(when, last);
    }
    if (copy + 1 == copies) return timeline_.at(when, std::move(deliver));
    timeline_.at(when, deliver);
  }
}

template <class Deliver>
bool Network::carry_in_order(const Weather& weather, bool cut, Duration& last,
                             std::string_view bytes, Duration takes, Deliver deliver) {
  const bool is_lost =
      cut || dice_.chance(weather.loss) || (brings_chunk(bytes) && dice_.chance(transfers_fail));
  if (is_lost) return is_gossip(bytes);
  last = std::max(timeline_.now() + dice_.duration(weather.delay_min, weather.delay_max), last);
  last += takes;
  timeline_.at(last, std::move(deliver));
  return true;
}

Duration Network::time_of(std::string_view blob_message, bool to_server) const {
  if (!brings_chunk(blob_message)) return {};
  return chunk_takes ? chunk_takes(blob_message, to_server) : chunk_time;
}

void Network::break_stream(std::uint64_t number, bool cut) {
  if (std::exchange(connections_.at(number).is_broken, true)) return;
  const Duration learns = cut ? kSilenceDetected : milliseconds(5);
  end(number, learns, learns);
}

void Network::send_to_server(const std::string& address, Endpoint endpoint, std::string bytes) {
  const auto found = sockets_.find({address, endpoint});
  if (found == sockets_.end() || found->second.connection == 0) return;
  const std::uint64_t number = found->second.connection;
  Connection& connection = connections_.at(number);
  const Weather& weather = weather_[address];
  const char first = bytes.empty() ? '\0' : bytes.front();
  const Duration takes = endpoint == Endpoint::kBlob ? time_of(bytes, true) : Duration{};
  auto deliver = [this, number, name = connection.server_name, bytes = std::move(bytes)] {
    deliver_to_server(number, name, bytes);
  };
  if (endpoint != Endpoint::kBlob)
    return carry(weather, weather.to_server_cut, connection.last_to_server, std::move(deliver));
  if (!carry_in_order(weather, weather.to_server_cut, connection.last_to_server, {&first, 1}, takes,
                      std::move(deliver)))
    break_stream(number, weather.to_server_cut);
}

void Network::deliver_to_server(std::uint64_t number, const ConnectionId& name,
                                const std::string& bytes) {
  const auto found = connections_.find(number);
  if (found == connections_.end() || !found->second.server_open || server_ == nullptr) return;
  Connection& connection = found->second;
  if (connection.server_name != name) return;  // it came over what the socket has silently left
  connection.named = true;
  trace_.add(connection.address, "to coordinator", bytes);
  server_->received(connection.server_name, connection.endpoint, connection.key, bytes);
}

bool Network::send_to_client(const ConnectionId& name, std::string bytes) {
  const auto found = by_server_name_.find(name);
  if (found == by_server_name_.end()) return false;
  const std::uint64_t number = found->second;
  Connection& connection = connections_.at(number);
  if (!connection.server_open) return false;
  const Weather& weather = weather_[connection.address];
  const bool is_blob = connection.endpoint == Endpoint::kBlob;
  const char first = bytes.empty() ? '\0' : bytes.front();
  const Duration takes = is_blob ? time_of(bytes, false) : Duration{};
  auto deliver = [this, number, bytes = std::move(bytes)] { deliver_to_client(number, bytes); };
  if (!is_blob) {
    carry(weather, weather.to_client_cut, connection.last_to_client, std::move(deliver));
  } else if (!carry_in_order(weather, weather.to_client_cut, connection.last_to_client, {&first, 1},
                             takes, std::move(deliver))) {
    break_stream(number, weather.to_client_cut);
  }
  return true;
}

void Network::deliver_to_client(std::uint64_t number, const std::string& bytes) {
  const auto found = connections_.find(number);
  if (found == connections_.end() || !found->second.client_open) return;
  const Connection& connection = found->second;
  const auto at = sockets_.find({connection.address, connection.endpoint});
  if (at == sockets_.end() || at->second.connection != number) return;
  trace_.add(connection.address, "from coordinator", bytes);
  at->second.client->received(connection.endpoint, bytes);
}

void Network::throw_out(const std::string& key) {
  std::vector<ConnectionId> unwanted;
  for (const auto& [name, number] : by_server_name_) {
    const Connection& connection = connections_.at(number);
    if (connection.key == key && connection.endpoint != Endpoint::kEnrol) unwanted.push_back(name);
  }
  for (const ConnectionId& name : unwanted) {
    const Connection& connection = connections_.at(by_server_name_.at(name));
    if (connection.named) {
      timeline_.after({}, [this, name, endpoint = connection.endpoint, key] {
        if (server_ != nullptr) server_->closed(name, endpoint, key);
      });
    }
    disconnect(name);
  }
}

void Network::disconnect(const ConnectionId& name) {
  const auto found = by_server_name_.find(name);
  if (found == by_server_name_.end()) return;
  const std::uint64_t number = found->second;
  Connection& connection = connections_.at(number);
  connection.server_open = false;
  by_server_name_.erase(found);
  const Weather& weather = weather_[connection.address];
  const Duration learns = weather.to_client_cut ? kSilenceDetected : weather.delay_max;
  timeline_.after(learns, [this, number] { tell_client(number); });
}

void Network::cut(const std::string& address, bool to_server, bool to_client) {
  Weather& weather = weather_[address];
  weather.to_server_cut = to_server;
  weather.to_client_cut = to_client;
  for (auto& [number, connection] : connections_) {
    if (connection.address != address || !connection.client_open || !connection.server_open)
      continue;
    // Each side that hears nothing notices in its own time, if the cut lasts.
    if (to_client) {
      timeline_.after(kSilenceDetected + dice_.duration({}, seconds(1)),
                      [this, n = number, address] {
                        if (weather_[address].to_client_cut) tell_client(n);
                      });
    }
    if (to_server) {
      timeline_.after(kSilenceDetected + dice_.duration({}, seconds(1)),
                      [this, n = number, address] {
                        if (weather_[address].to_server_cut) tell_server(n);
                      });
    }
  }
}

void Network::heal(const std::string& address) {
  weather_[address] = Weather{};
  // A connection that only one side still believes in ends now: its first
  // packet is answered by a reset.
  std::vector<std::pair<std::uint64_t, bool>> half;
  for (auto& [number, connection] : connections_) {
    if (connection.address == address && connection.client_open != connection.server_open) {
      half.emplace_back(number, connection.client_open);
    }
  }
  for (const auto& [number, at_client] : half) {
    timeline_.after(milliseconds(5), [this, n = number, client = at_client] {
      client ? tell_client(n) : tell_server(n);
    });
  }
}

void Network::end(std::uint64_t number, Duration client_learns, Duration server_learns) {
  timeline_.after(client_learns, [this, number] { tell_client(number); });
  timeline_.after(server_learns, [this, number] { tell_server(number); });
}

void Network::reset(const std::string& address) {
  for (const auto& [number, connection] : connections_) {
    if (connection.address != address || !connection.client_open || !connection.server_open)
      continue;
    // Drawn one after the other: compilers do not agree on the order of
    // arguments.
    const Duration server_learns =
        dice_.duration({}, dice_.chance(0.3) ? seconds(3) : milliseconds(50));
    const Duration client_learns = dice_.duration({}, milliseconds(50));
    end(number, client_learns, server_learns);
  }
}

void Network::redial_silently(const std::string& address) {
  const auto found = sockets_.find({address, Endpoint::kControl});
  if (found == sockets_.end() || found->second.connection == 0 || server_ == nullptr) return;
  Connection& connection = connections_.at(found->second.connection);
  if (!connection.server_open) return;
  const ConnectionId old = connection.server_name;
  by_server_name_.erase(old);
  connection.server_name = text("c", next_number_++);
  by_server_name_[connection.server_name] = found->second.connection;
  if (connection.named) {
    timeline_.after(dice_.duration({}, milliseconds(100)), [this, old, key = connection.key] {
      if (server_ == nullptr) return;
      trace_.add("coordinator", "closed", old);
      server_->closed(old, Endpoint::kControl, key);
    });
  }
  connection.named = false;
}

void Network::tell_client(std::uint64_t number) {
  const auto found = connections_.find(number);
  if (found == connections_.end() || !found->second.client_open) return;
  Connection& connection = found->second;
  connection.client_open = false;
  const auto at = sockets_.find({connection.address, connection.endpoint});
  if (at == sockets_.end() || at->second.connection != number) return;
  at->second.connection = 0;
  trace_.add(connection.address, "lost");
  NetworkClient* client = at->second.client;
  dial_later(at->second, kRedialFirst + dice_.duration({}, kRedialFirst));
  const Endpoint endpoint = connection.endpoint;
  if (connection.server_open && !weather_[connection.address].to_server_cut) {
    timeline_.after(milliseconds(5), [this, number] { tell_server(number); });
  }
  client->lost(endpoint);
}

void Network::tell_server(std::uint64_t number) {
  const auto found = connections_.find(number);
  if (found == connections_.end() || !found->second.server_open) return;
  Connection& connection = found->second;
  connection.server_open = false;
  by_server_name_.erase(connection.server_name);
  if (connection.client_open && !weather_[connection.address].to_client_cut) {
    timeline_.after(milliseconds(5), [this, number] { tell_client(number); });
  }
  if (server_ == nullptr || !connection.named) return;
  trace_.add("coordinator", "closed", connection.server_name);
  server_->closed(connection.server_name, connection.endpoint, connection.key);
}

bool Network::can_reach(const std::string& address) const {
  return server_ != nullptr && !is_cut(address);
}

bool Network::is_cut(const std::string& address) const {
  const auto found = weather_.find(address);
  return found != weather_.end() && (found->second.to_server_cut || found->second.to_client_cut);
}

}  // namespace skerry::simulation
