// SPDX-License-Identifier: Apache-2.0
#include "protocol/zmq_server.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/check.h"
#include "base/log.h"
#include "protocol/limits.h"
#include "protocol/zmq_bind.h"

namespace skerry::protocol {
namespace {

constexpr int kZapEnforceDomain = 93;  // missing from the header, known to the library
constexpr int kLingerMs = 1'000;
constexpr int kBacklog =
    4096;  // what Linux allows: a whole fleet that dials at once after a restart
constexpr Duration kCheckInterval = std::chrono::milliseconds(200);
constexpr int kCheckShare =
    50;  // looking at connections takes at most a fiftieth of the thread's time
constexpr Duration kSilence = std::chrono::seconds(25);  // ZeroMQ gives a handshake 30 s
constexpr Duration kMemberSilence = std::chrono::hours(1);
constexpr std::size_t kMemberConnections =
    // of one key on one endpoint: more than any client needs
    64;
constexpr std::size_t kOtherDescriptors = 256;  // the process's own files, sockets and libraries

// Messages taken from one endpoint before the others get their turn, so that a
// heartbeat never waits behind blobs.
int burst_of(Endpoint endpoint) {
  if (endpoint == Endpoint::kControl) return 256;
  return endpoint == Endpoint::kEnrol ? 16 : 4;
}

// A node holds one connection to control and one to blob. As many again may be
// in their handshakes.
Result<void> ensure_descriptors(std::size_t connections) {
  const rlim_t wanted = 4 * connections + kEnrolConnections + kOtherDescriptors;
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_cur >= wanted) return {};
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, std::max<rlim_t>(wanted, limit.rlim_cur));
  if (limit.rlim_cur >= wanted && ::setrlimit(RLIMIT_NOFILE, &limit) == 0) return {};
  return fail(
      ErrorCode::kExhausted,
      text(connections, " connections need ", wanted, " descriptors, the system allows ",
           limit.rlim_max, ": raise LimitNOFILE (ulimit -n) or lower the number of connections"));
}

// Whether the descriptor is still a connection of this port. The I/O thread may
// have closed it, and another thread may have opened a file under its number.
bool is_connection_of(int descriptor, std::uint16_t port) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (::getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &size) != 0) return false;
  if (address.ss_family == AF_INET)
    return ntohs(reinterpret_cast<sockaddr_in&>(address).sin_port) == port;
  return address.ss_family == AF_INET6 &&
         ntohs(reinterpret_cast<sockaddr_in6&>(address).sin6_port) == port;
}

// In the form that people write: a listener for both families reports IPv4
// peers as mapped addresses.
std::string plain_address(std::string address) {
  constexpr std::string_view kMapped = "::ffff:";
  if (address.starts_with(kMapped) && address.find('.') != std::string::npos)
    address.erase(0, kMapped.size());
  return address;
}

GuardLimits guard_limits(Endpoint endpoint, std::size_t connections) {
  if (endpoint == Endpoint::kEnrol)
    return {.strangers = kEnrolConnections,
            .stranger_bytes = kEnrolConnectionBytes,
            .strangers_bytes = kEnrolConnections * kEnrolConnectionBytes};
  const std::uint64_t first =
      limit_bytes(endpoint) + kEnrolConnectionBytes;  // one message, and a handshake
  return {.strangers = connections,
          .stranger_bytes = first,
          .strangers_bytes = kStrangersBytes,
          .member_bytes = endpoint == Endpoint::kControl ? kControlUnreadBytes : kBlobUnreadBytes,
          .member_connections = kMemberConnections,
          .member_silence = kMemberSilence,
          .silence = kSilence};
}

// The address of a connection's other end, without its port; empty if it has
// ended.
std::string address_of(int descriptor) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  std::array<char, NI_MAXHOST> name{};
  if (::getpeername(descriptor, reinterpret_cast<sockaddr*>(&address), &size) != 0 ||
      ::getnameinfo(reinterpret_cast<sockaddr*>(&address), size, name.data(), name.size(), nullptr,
                    0, NI_NUMERICHOST) != 0) {
    return {};
  }
  return plain_address(name.data());
}

}  // namespace

ZmqServer::ZmqServer(std::shared_ptr<void> context, ZmqSocket zap)
    : context_(std::move(context)),
      zap_(std::move(zap),
           [this](std::string_view domain, std::string_view key, std::string_view address) {
             return may_enter(domain, key, address);
           }) {}

Result<std::unique_ptr<ZmqServer>> ZmqServer::open(const Identity& identity,
                                                   std::span<const Endpoint> endpoints,
                                                   std::size_t connections) {
  TRY(ensure_descriptors(connections));
  ASSIGN_OR_RETURN(std::shared_ptr<void> context, make_zmq_context());
  ASSIGN_OR_RETURN(ZmqSocket zap, ZmqSocket::open(context, ZMQ_REP));
  std::unique_ptr<ZmqServer> server(new ZmqServer(std::move(context), std::move(zap)));
  for (const Endpoint endpoint : endpoints) TRY(server->open_port(endpoint, identity, connections));
  return server;
}

Result<void> ZmqServer::open_port(Endpoint endpoint, const Identity& identity,
                                  std::size_t connections) {
  ASSIGN_OR_RETURN(ZmqSocket router, ZmqSocket::open(context_, ZMQ_ROUTER));
  ASSIGN_OR_RETURN(
      ZmqMonitor monitor,
      ZmqMonitor::open(context_, router,
                       ZMQ_EVENT_ACCEPTED | ZMQ_EVENT_DISCONNECTED | ZMQ_EVENT_ACCEPT_FAILED));
  set_connection_options(router, endpoint, identity, connections);
  router.set(ZMQ_ROUTER_MANDATORY, 1);
  router.set(ZMQ_BACKLOG, kBacklog);
  router.set(ZMQ_CURVE_SERVER, 1);
  router.set(ZMQ_ZAP_DOMAIN, std::string_view(to_string(endpoint)));
  router.set(kZapEnforceDomain, 1);
  ports_.push_back(
      std::make_unique<Port>(Port{.endpoint = endpoint,
                                  .router = std::move(router),
                                  .monitor = std::move(monitor),
                                  .peers = {},
                                  .guard = ConnectionGuard(guard_limits(endpoint, connections))}));
  return {};
}

ZmqServer::Port& ZmqServer::port_of(Endpoint endpoint) {
  const auto found =
      std::ranges::find(ports_, endpoint, [](const auto& port) { return port->endpoint; });
  SKERRY_CHECK(found != ports_.end(), "this server has no endpoint ", to_string(endpoint));
  return **found;
}

ZmqServer::~ZmqServer() {
  for (const auto& port : ports_) {
    zmq_socket_monitor(port->router.get(), nullptr, 0);
    port->router.set(ZMQ_LINGER, kLingerMs);  // answers that are on their way still leave
  }
}

Result<std::unique_ptr<ServerTransport>> ZmqServer::make(const Identity& identity,
                                                         const ServerOptions& options) {
  ASSIGN_OR_RETURN(const Address address, parse_flag("--listen", options.listen));
  ASSIGN_OR_RETURN(const std::string host, resolve_listen_host(address.host));
  ASSIGN_OR_RETURN(auto server, open(identity, kAllEndpoints, options.connections));
  std::array<std::uint16_t, kEndpointCount> numbers{};
  for (std::size_t i = 0; i < kEndpointCount; ++i) {
    Port& port = *server->ports_[i];
    ASSIGN_OR_RETURN(port.number, bind_port(port.router, port.endpoint, host, address.ports[i]));
    numbers[i] = port.number;
  }
  ASSIGN_OR_RETURN(server->endpoints_, advertised(options.advertise, host, numbers));
  return std::unique_ptr<ServerTransport>(std::move(server));
}

Result<std::unique_ptr<ServerTransport>> ZmqServer::make_for_peers(const Identity& identity,
                                                                   const ServerOptions& options) {
  ASSIGN_OR_RETURN(const HostPort address, parse_host_port(options.listen));
  ASSIGN_OR_RETURN(const std::string host, resolve_listen_host(address.host));
  constexpr std::array kOnly = {Endpoint::kPeer};
  ASSIGN_OR_RETURN(auto server, open(identity, kOnly, options.connections));
  Port& port = *server->ports_.front();
  ASSIGN_OR_RETURN(port.number, bind_port(port.router, port.endpoint, host, address.port));
  server->endpoints_.peer = tcp_url(host, port.number);
  return std::unique_ptr<ServerTransport>(std::move(server));
}

bool ZmqServer::may_enter(std::string_view domain, std::string_view key, std::string_view address) {
  const auto asked = std::ranges::find_if(
      ports_, [&](const auto& port) { return to_string(port->endpoint) == domain; });
  const Endpoint endpoint = asked == ports_.end() ? Endpoint::kControl : (*asked)->endpoint;
  if (is_allowed(endpoint, std::string(key))) return true;
  events_.push_back(
      TurnedAway{endpoint, std::string(key), plain_address(std::string(address)),
                 endpoint == Endpoint::kPeer ? "its key is shut out" : "its key is not known"});
  return false;
}

bool ZmqServer::is_allowed(Endpoint endpoint, const std::string& key) const {
  if (endpoint == Endpoint::kPeer) return !refused_.contains(key);
  return endpoint == Endpoint::kEnrol || allowed_.contains(key);
}

void ZmqServer::set_allowed(std::unordered_set<std::string> keys) {
  allowed_ = std::move(keys);
  throw_out_unwanted();
}

void ZmqServer::set_refused(std::unordered_set<std::string> keys) {
  refused_ = std::move(keys);
  throw_out_unwanted();
}

void ZmqServer::throw_out_unwanted() {
  std::erase_if(events_, [this](const ServerEvent& event) {
    const auto* incoming = std::get_if<Incoming>(&event);
    return incoming != nullptr && !is_allowed(incoming->connection.endpoint, incoming->public_key);
  });
  for (const auto& port : ports_) {
    for (const Peer& peer : port->peers.peers()) {
      if (!is_allowed(port->endpoint, peer.public_key)) throw_out(*port, peer);
    }
  }
}

void ZmqServer::throw_out(Port& port, const Peer& peer) {
  if (peer.descriptor >= 0 && is_connection_of(peer.descriptor, port.number))
    ::shutdown(peer.descriptor, SHUT_RDWR);
  if (const auto over = port.peers.forget(peer.connection)) announce(port, {*over});
}

void ZmqServer::close(const Connection& connection) {
  Port& port = port_of(connection.endpoint);
  drain_monitor(port);
  const Peer* peer = port.peers.find(connection.id);
  if (peer != nullptr) throw_out(port, Peer(*peer));
}

Result<void> ZmqServer::send(const Connection& connection, std::string_view bytes) {
  Port& port = port_of(connection.endpoint);
  if (bytes.size() > limit_bytes(connection.endpoint)) {
    return fail(ErrorCode::kInvalid,
                text("a message of ", bytes.size(), " bytes is over the limit of ",
                     to_string(connection.endpoint), ", ", limit_bytes(connection.endpoint)));
  }
  if (port.peers.is_over(connection.id)) return fail(ErrorCode::kUnavailable, "the peer is gone");
  ZmqFrame address(connection.id);
  ZmqFrame body(bytes);
  // Without it the socket would take the next message's address for this one's
  // content.
  if (!body.is_complete()) return fail(ErrorCode::kExhausted, "out of memory for a message");
  const int refused = address.send(port.router, true);
  if (refused == EAGAIN) return fail(ErrorCode::kExhausted, "the peer's queue is full");
  if (refused != 0) return fail(ErrorCode::kUnavailable, "the peer is gone");
  const int lost = body.send(port.router);
  if (lost != 0) return fail(ErrorCode::kUnavailable, "the peer is gone");
  return {};
}

void ZmqServer::announce(const Port& port, const std::vector<Peer>& over) {
  for (const Peer& peer : over)
    events_.push_back(Closed{{port.endpoint, peer.connection}, peer.public_key});
}

void ZmqServer::drain_monitor(Port& port) {
  const Duration now = clock_.now().boot;
  for (const ZmqMonitorEvent& event : port.monitor.drain()) {
    if (event.kind == ZMQ_EVENT_ACCEPT_FAILED) {
      log_error("cannot accept a connection",
                {{"endpoint", to_string(port.endpoint)}, {"errno", event.value}});
    } else if (event.kind == ZMQ_EVENT_ACCEPTED) {
      announce(port, port.peers.accepted(event.value));
      if (const auto oldest = port.guard.accepted(event.value, address_of(event.value), now))
        end(port, *oldest);
    } else if (event.kind == ZMQ_EVENT_DISCONNECTED) {
      if (const auto stranger = port.guard.ended(event.value, now)) tell(port, *stranger);
      announce(port, port.peers.disconnected(event.value));
    }
  }
}

void ZmqServer::tell(const Port& port, const Offender& offender) {
  events_.push_back(TurnedAway{port.endpoint, offender.public_key, offender.address, offender.why});
}

// The monitor reports its disconnection.
void ZmqServer::end(Port& port, const Offender& offender) {
  if (!is_connection_of(offender.descriptor, port.number)) return;
  ::shutdown(offender.descriptor, SHUT_RDWR);
  if (!offender.why.empty()) tell(port, offender);
}

void ZmqServer::check_connections() {
  const Duration now = clock_.now().boot;
  if (now < next_check_) return;
  for (const auto& port : ports_) {
    for (const Offender& offender : port->guard.check(now)) end(*port, offender);
  }
  next_check_ = now + std::max(kCheckInterval, kCheckShare * (clock_.now().boot - now));
}

bool ZmqServer::receive_one(Port& port) {
  ZmqFrame from;
  if (!from.receive(port.router)) return false;
  ZmqFrame body;
  if (!from.more() || !body.receive(port.router)) return true;
  bool last = !body.more();
  const bool whole = last && body.bytes().size() <= limit_bytes(port.endpoint);
  while (!last) {
    ZmqFrame rest;
    last = !rest.receive(port.router) || !rest.more();
  }
  Peer peer{std::string(from.bytes()), {}, body.descriptor()};
  if (auto key = from_hex(body.property("User-Id"))) peer.public_key = std::move(*key);
  // Pass on the events of descriptors that happened before this message first.
  drain_monitor(port);
  if (whole && peer.public_key.size() == kKeyBytes) {
    accept_message(port, std::move(peer), plain_address(body.property("Peer-Address")),
                   std::string(body.bytes()));
  } else {
    events_.push_back(TurnedAway{port.endpoint, peer.public_key,
                                 plain_address(body.property("Peer-Address")),
                                 "sent a message of several frames, or too long a one"});
    throw_out(port, peer);
  }
  return true;
}

void ZmqServer::accept_message(Port& port, Peer peer, std::string address, std::string bytes) {
  if (port.peers.is_over(peer.connection)) return;
  if (!is_allowed(port.endpoint, peer.public_key)) return throw_out(port, peer);
  if (port.endpoint != Endpoint::kEnrol)
    port.guard.heard(peer.descriptor, peer.public_key, bytes.size());
  const std::vector<Peer> over = port.peers.message(peer);
  Incoming incoming{
      {port.endpoint, peer.connection}, peer.public_key, std::move(address), std::move(bytes)};
  const auto own = std::find_if(over.begin(), over.end(),
                                [&](const Peer& one) { return one.connection == peer.connection; });
  if (own == over.end()) announce(port, over);
  events_.push_back(std::move(incoming));
  if (own != over.end()) announce(port, over);
}

void ZmqServer::deliver(const Handler& handle) {
  while (!events_.empty()) {
    ServerEvent event = std::move(events_.front());
    events_.pop_front();
    handle(std::move(event));
  }
}

void ZmqServer::receive_some(Port& port, const Handler& handle) {
  for (int i = 0; i < burst_of(port.endpoint) && receive_one(port); ++i) deliver(handle);
}

Result<std::vector<int>> ZmqServer::wait(Duration timeout, std::span<const int> readable) {
  if (!events_.empty()) timeout = Duration::zero();
  const bool idle =
      std::ranges::all_of(ports_, [](const auto& port) { return port->guard.idle(); });
  if (!idle && (timeout < Duration::zero() || timeout > kCheckInterval)) timeout = kCheckInterval;
  std::vector<zmq_pollitem_t> items;
  items.push_back({zap_.socket().get(), 0, ZMQ_POLLIN, 0});
  for (const auto& port : ports_) {
    items.push_back({port->router.get(), 0, ZMQ_POLLIN, 0});
    items.push_back({port->monitor.socket().get(), 0, ZMQ_POLLIN, 0});
  }
  add_descriptors(items, readable);
  if (zmq_poll(items.data(), static_cast<int>(items.size()), poll_milliseconds(timeout)) < 0 &&
      zmq_errno() != EINTR) {
    return zmq_error("waiting for messages");
  }
  return ready_descriptors(items);
}

Result<std::vector<int>> ZmqServer::poll(Duration timeout, std::span<const int> readable,
                                         const Handler& handle) {
  ASSIGN_OR_RETURN(std::vector<int> ready, wait(timeout, readable));
  zap_.answer_all();
  for (const auto& port : ports_) drain_monitor(*port);
  check_connections();
  deliver(handle);
  // Control first.
  for (const Endpoint endpoint :
       {Endpoint::kControl, Endpoint::kEnrol, Endpoint::kBlob, Endpoint::kPeer}) {
    for (const auto& port : ports_) {
      if (port->endpoint == endpoint) receive_some(*port, handle);
    }
  }
  return ready;
}

std::vector<int> ZmqServer::descriptors() const {
  std::vector<int> all = {zap_.socket().descriptor()};
  for (const auto& port : ports_) {
    all.push_back(port->router.descriptor());
    all.push_back(port->monitor.socket().descriptor());
  }
  return all;
}

Result<std::unique_ptr<ServerTransport>> make_zmq_server(const Identity& identity,
                                                         const ServerOptions& options) {
  return ZmqServer::make(identity, options);
}

Result<std::unique_ptr<ServerTransport>> make_zmq_peer_server(const Identity& identity,
                                                              const ServerOptions& options) {
  return ZmqServer::make_for_peers(identity, options);
}

}  // namespace skerry::protocol
