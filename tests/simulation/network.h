// SPDX-License-Identifier: Apache-2.0
// The simulated network between the coordinator and its clients. Clients dial
// and redial connections by themselves, as the real transport does; the
// connections fail in every way. Messages are bytes.
//
// A connection keeps the order of its messages and loses none, unless the
// link's weather says otherwise. A message under way when its connection ends
// is lost. Either side may learn late, or never, that a connection ended. The
// server knows a client only by the key that it dialled with (S12).
//
// Blob connections bear less, as their hosts do. A message that the weather
// takes ends them, unless it is gossip, and nothing overtakes on them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "coordinator/core/core.h"
#include "protocol/endpoints.h"
#include "tests/simulation/dice.h"
#include "tests/simulation/timeline.h"
#include "tests/simulation/trace.h"

namespace skerry::simulation {

using coordinator::ConnectionId;
using protocol::Endpoint;
using std::chrono::milliseconds;
using std::chrono::seconds;

// What a link does to messages. Probabilities are per message.
struct Weather {
  Duration delay_min = milliseconds(1);
  Duration delay_max = milliseconds(4);
  double loss = 0;
  double duplicate = 0;
  double reorder = 0;
  bool to_server_cut = false;
  bool to_client_cut = false;
};

class NetworkClient {
 public:
  virtual ~NetworkClient() = default;
  virtual void opened(Endpoint endpoint) = 0;
  virtual void lost(Endpoint endpoint) = 0;
  virtual void refused(
      Endpoint endpoint) = 0;  // the server does not know the key; dialled again by itself
  virtual void received(Endpoint endpoint, const std::string& bytes) = 0;
};

class NetworkServer {
 public:
  virtual ~NetworkServer() = default;
  virtual bool admits(Endpoint endpoint, const std::string& key) const = 0;
  virtual void received(const ConnectionId& connection, Endpoint endpoint, const std::string& key,
                        const std::string& bytes) = 0;
  virtual void closed(const ConnectionId& connection, Endpoint endpoint,
                      const std::string& key) = 0;
};

// What a serialised blob message carries, by its first byte.
bool is_gossip(std::string_view blob_message);
bool brings_chunk(std::string_view blob_message);

class Network {
 public:
  Network(Timeline& timeline, Trace& trace, std::uint64_t seed)
      : timeline_(timeline), trace_(trace), dice_(seed, "network") {}

  // ---- Server ----
  void server_up(NetworkServer& server);
  // Every connection ends; clients learn it within a moment, or by and by where
  // their link is cut.
  void server_down();
  // False: there is no such connection.
  bool send_to_client(const ConnectionId& connection, std::string bytes);
  void disconnect(const ConnectionId& connection);
  // This key is let in no more: ends its connections to anything but enrol,
  // also those that have said nothing yet.
  void throw_out(const std::string& key);

  // ---- Clients, by their address ----
  // Connects, and redials without end. Dialling what is dialled does nothing.
  void dial(const std::string& address, Endpoint endpoint, const std::string& key,
            NetworkClient& client);
  // As the end of a process: the client hears nothing any more. `silent`: the
  // server is not told either.
  void hang_up(const std::string& address, bool silent);
  void hang_up(const std::string& address, Endpoint endpoint);
  void send_to_server(const std::string& address, Endpoint endpoint, std::string bytes);

  // ---- Weather ----
  Weather& weather(const std::string& address) { return weather_[address]; }
  void cut(const std::string& address, bool to_server, bool to_client);
  void heal(const std::string& address);
  // Breaks a client's connections: both sides learn it, each in its own time.
  void reset(const std::string& address);
  // The client's socket redials without a word: the server sees another
  // connection, the client none of it.
  void redial_silently(const std::string& address);
  bool can_reach(const std::string& address) const;  // both ways, with the server up
  bool is_cut(const std::string& address) const;     // one way at least
  // Of chunks: the share whose connection breaks as they come, and how long one
  // is under way beside the weather.
  double transfers_fail = 0;
  Duration chunk_time = milliseconds(30);
  // Of one message that brings a chunk, in place of chunk_time; none: that.
  std::function<Duration(std::string_view message, bool to_server)> chunk_takes;
  // Between two handshakes that the server takes up; 0: as many as come.
  void set_handshake_time(Duration time) { handshake_time_ = time; }

 private:
  struct Socket {
    std::string address;
    Endpoint endpoint = Endpoint::kControl;
    std::string key;
    NetworkClient* client = nullptr;
    std::uint64_t number = 0;      // of this socket; a later one at the same place has another
    std::uint64_t connection = 0;  // 0: dialling
    unsigned dials = 0;
    bool in_handshake = false;
  };
  struct Connection {
    std::string address;
    Endpoint endpoint = Endpoint::kControl;
    std::string key;
    ConnectionId server_name;
    bool named = false;       // the server has received something over it
    bool client_open = true;  // as each side believes
    bool server_open = true;
    bool is_broken = false;  // a stream that has lost something: it ends
    Duration last_to_server{};
    Duration last_to_client{};
  };
  using Place = std::pair<std::string, Endpoint>;

  Socket* socket(const Place& place, std::uint64_t number);
  void dial_later(Socket& socket, Duration delay);
  void try_dial(const Place& place, std::uint64_t number);
  void open(const Place& place, std::uint64_t number);
  void end(std::uint64_t number, Duration client_learns, Duration server_learns);
  void tell_client(std::uint64_t number);
  void tell_server(std::uint64_t number);
  void deliver_to_server(std::uint64_t number, const ConnectionId& name, const std::string& bytes);
  void deliver_to_client(std::uint64_t number, const std::string& bytes);
  // Plans none, one or two deliveries.
  template <class Deliver>
  void carry(const Weather& weather, bool cut, Duration& last, Deliver deliver);
  // The same of a stream. RETURNS: false: it is lost, and the connection ends.
  template <class Deliver>
  bool carry_in_order(const Weather& weather, bool cut, Duration& last, std::string_view bytes,
                      Duration takes, Deliver deliver);
  // Beside the weather.
  Duration time_of(std::string_view blob_message, bool to_server) const;
  void break_stream(std::uint64_t number, bool cut);

  Timeline& timeline_;
  Trace& trace_;
  Dice dice_;
  NetworkServer* server_ = nullptr;
  std::uint64_t next_number_ = 1;
  Duration handshake_time_{};
  Duration handshakes_until_{};
  std::map<Place, Socket> sockets_;
  std::map<std::uint64_t, Connection> connections_;
  std::map<ConnectionId, std::uint64_t> by_server_name_;
  std::map<std::string, Weather> weather_;
};

}  // namespace skerry::simulation
