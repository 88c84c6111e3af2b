// SPDX-License-Identifier: Apache-2.0
// The dialling side of the transport. See zmq_transport.h.
#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>

#include "base/log.h"
#include "base/random.h"
#include "base/text.h"
#include "protocol/zmq_socket.h"
#include "protocol/zmq_transport.h"

namespace skerry::protocol {
namespace {

constexpr Duration kBackoffFirst = std::chrono::milliseconds(100);
constexpr Duration kBackoffMost = std::chrono::seconds(2);
constexpr int kConnectTimeoutMs = 5'000;
constexpr int kBurst = 64;
constexpr int kEvents = ZMQ_EVENT_DISCONNECTED | ZMQ_EVENT_HANDSHAKE_SUCCEEDED |
                        ZMQ_EVENT_HANDSHAKE_FAILED_AUTH | ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL |
                        ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL;

// One socket's life. A refused key ends it, since ZeroMQ would never dial
// again.
struct Socket {
  ZmqSocket dealer;
  ZmqMonitor monitor;
  bool open = false;
};

struct Dialled {
  std::unique_ptr<Socket> socket;  // none while waiting to dial again
  Duration again_at{};
  Duration backoff = kBackoffFirst;
};

constexpr std::array kEveryEndpoint = {Endpoint::kControl, Endpoint::kEnrol, Endpoint::kBlob,
                                       Endpoint::kPeer};

class ZmqClient final : public ClientTransport {
 public:
  ZmqClient(const Identity& identity, ClientOptions options, std::string server_key,
            std::shared_ptr<void> context)
      : identity_(identity),
        options_(std::move(options)),
        server_key_(std::move(server_key)),
        context_(std::move(context)),
        jitter_(
            {.seed = std::hash<std::string>{}(identity.x25519_key()), .purpose = Purpose::kId}) {}

  ~ZmqClient() override {
    for (const Endpoint endpoint : kEveryEndpoint) hang_up(endpoint);
  }

  void dial(Endpoint endpoint) override {
    if (of(endpoint)) return;
    of(endpoint).emplace();
    connect(endpoint);
  }

  void hang_up(Endpoint endpoint) override { of(endpoint).reset(); }

  Result<void> send(Endpoint endpoint, std::string_view bytes) override;
  Result<std::vector<int>> poll(Duration timeout, std::span<const int> readable,
                                const Handler& handle) override;
  std::vector<int> descriptors() const override;

 private:
  std::optional<Dialled>& of(Endpoint endpoint) {
    return dialled_[static_cast<std::size_t>(endpoint)];
  }
  Socket* socket_of(Endpoint endpoint) {
    return of(endpoint) ? of(endpoint)->socket.get() : nullptr;
  }
  Duration now() const { return clock_.now().boot; }
  void connect(Endpoint endpoint);
  Result<std::unique_ptr<Socket>> open(Endpoint endpoint);
  void connect_due();
  Duration until_due(Duration timeout);
  void dial_later(Endpoint endpoint);
  void drain_monitor(Endpoint endpoint, const Handler& handle);
  bool apply(Endpoint endpoint, const ZmqMonitorEvent& event, const Handler& handle);
  void receive_some(Endpoint endpoint, const Handler& handle);

  const Identity identity_;
  const ClientOptions options_;
  const std::string server_key_;
  SystemClock clock_;
  std::shared_ptr<void> context_;
  Stream jitter_;
  std::array<std::optional<Dialled>, kEveryEndpoint.size()> dialled_;
};

void ZmqClient::connect(Endpoint endpoint) {
  Result<std::unique_ptr<Socket>> socket = open(endpoint);
  if (socket) {
    of(endpoint)->socket = std::move(*socket);
    return;
  }
  dial_later(endpoint);
  log_warning("cannot dial, will try again",
              {{"endpoint", options_.endpoints.of(endpoint)}, {"reason", socket.error().message}});
}

Result<std::unique_ptr<Socket>> ZmqClient::open(Endpoint endpoint) {
  ASSIGN_OR_RETURN(ZmqSocket dealer, ZmqSocket::open(context_, ZMQ_DEALER));
  ASSIGN_OR_RETURN(ZmqMonitor monitor, ZmqMonitor::open(context_, dealer, kEvents));
  set_connection_options(dealer, endpoint, identity_, 1);
  dealer.set(ZMQ_CURVE_SERVERKEY, server_key_);
  // No message is kept for a server that is away: the next server would get it,
  // stale.
  dealer.set(ZMQ_IMMEDIATE, 1);
  dealer.set(ZMQ_RECONNECT_IVL,
             static_cast<int>(poll_milliseconds(kBackoffFirst)));  // ZeroMQ adds jitter
  dealer.set(ZMQ_RECONNECT_IVL_MAX, static_cast<int>(poll_milliseconds(kBackoffMost)));
  dealer.set(ZMQ_CONNECT_TIMEOUT, kConnectTimeoutMs);
  const std::string& url = options_.endpoints.of(endpoint);
  if (zmq_connect(dealer.get(), url.c_str()) != 0) return zmq_error(text("cannot dial ", url));
  return std::make_unique<Socket>(Socket{std::move(dealer), std::move(monitor)});
}

void ZmqClient::connect_due() {
  for (const Endpoint endpoint : kEveryEndpoint) {
    if (of(endpoint) && !of(endpoint)->socket && now() >= of(endpoint)->again_at) connect(endpoint);
  }
}

Duration ZmqClient::until_due(Duration timeout) {
  for (const Endpoint endpoint : kEveryEndpoint) {
    if (!of(endpoint) || of(endpoint)->socket) continue;
    const Duration left = std::max(Duration::zero(), of(endpoint)->again_at - now());
    if (timeout < Duration::zero() || left < timeout) timeout = left;
  }
  return timeout;
}

void ZmqClient::dial_later(Endpoint endpoint) {
  Dialled& dialled = *of(endpoint);
  dialled.socket.reset();
  const auto spread =
      std::chrono::duration_cast<Duration>(dialled.backoff * (0.5 + jitter_.uniform()));
  dialled.again_at = now() + spread;
  dialled.backoff = std::min(2 * dialled.backoff, kBackoffMost);
}

Result<void> ZmqClient::send(Endpoint endpoint, std::string_view bytes) {
  if (bytes.size() > limit_bytes(endpoint)) {
    return fail(ErrorCode::kInvalid,
                text("a message of ", bytes.size(), " bytes is over the limit of ",
                     to_string(endpoint), ", ", limit_bytes(endpoint)));
  }
  Socket* socket = socket_of(endpoint);
  if (socket == nullptr || !socket->open) return fail(ErrorCode::kUnavailable, "not connected");
  // This call registers a connection that is ready but not yet known to this
  // thread.
  if (!socket->dealer.can(ZMQ_POLLOUT) || ZmqFrame(bytes).send(socket->dealer) != 0) {
    return fail(ErrorCode::kExhausted, "the queue is full");
  }
  return {};
}

// RETURNS: false if the socket is gone, and with it its remaining events.
bool ZmqClient::apply(Endpoint endpoint, const ZmqMonitorEvent& event, const Handler& handle) {
  Socket* const before = socket_of(endpoint);
  switch (event.kind) {
    case ZMQ_EVENT_HANDSHAKE_SUCCEEDED:
      before->open = true;
      of(endpoint)->backoff = kBackoffFirst;
      handle(Opened{endpoint});
      break;
    case ZMQ_EVENT_DISCONNECTED:
      if (!std::exchange(before->open, false)) return true;
      handle(Lost{endpoint});
      break;
    case ZMQ_EVENT_HANDSHAKE_FAILED_AUTH:
      dial_later(endpoint);
      handle(Refused{endpoint, true});
      return false;
    default:
      handle(Refused{endpoint, false});
  }
  return socket_of(endpoint) == before;
}

void ZmqClient::drain_monitor(Endpoint endpoint, const Handler& handle) {
  Socket* socket = socket_of(endpoint);
  if (socket == nullptr) return;
  for (const ZmqMonitorEvent& event : socket->monitor.drain()) {
    if (!apply(endpoint, event, handle)) return;
  }
}

void ZmqClient::receive_some(Endpoint endpoint, const Handler& handle) {
  Socket* const socket = socket_of(endpoint);
  for (int i = 0; i < kBurst && socket != nullptr && socket_of(endpoint) == socket; ++i) {
    ZmqFrame frame;
    if (!frame.receive(socket->dealer)) return;
    bool more = frame.more();
    const bool whole = !more;
    while (more) {
      ZmqFrame rest;
      more = rest.receive(socket->dealer) && rest.more();
    }
    drain_monitor(endpoint, handle);
    if (whole && socket_of(endpoint) == socket)
      handle(Received{endpoint, std::string(frame.bytes())});
  }
}

Result<std::vector<int>> ZmqClient::poll(Duration timeout, std::span<const int> readable,
                                         const Handler& handle) {
  connect_due();
  std::vector<zmq_pollitem_t> items;
  for (const Endpoint endpoint : kEveryEndpoint) {
    Socket* socket = socket_of(endpoint);
    if (socket == nullptr) continue;
    items.push_back({socket->dealer.get(), 0, ZMQ_POLLIN, 0});
    items.push_back({socket->monitor.socket().get(), 0, ZMQ_POLLIN, 0});
  }
  add_descriptors(items, readable);
  const long wait = poll_milliseconds(until_due(timeout));
  if (zmq_poll(items.data(), static_cast<int>(items.size()), wait) < 0 && zmq_errno() != EINTR) {
    return zmq_error("waiting for messages");
  }
  std::vector<int> ready = ready_descriptors(items);
  for (const Endpoint endpoint : kEveryEndpoint) {
    drain_monitor(endpoint, handle);
    receive_some(endpoint, handle);
  }
  return ready;
}

std::vector<int> ZmqClient::descriptors() const {
  std::vector<int> all;
  for (const std::optional<Dialled>& dialled : dialled_) {
    if (!dialled || !dialled->socket) continue;
    all.push_back(dialled->socket->dealer.descriptor());
    all.push_back(dialled->socket->monitor.socket().descriptor());
  }
  return all;
}

constexpr std::size_t kSocketsOfClient = 3 * kEndpointCount;  // each with both ends of its monitor

Result<std::unique_ptr<ClientTransport>> make_client(const Identity& identity,
                                                     ClientOptions options) {
  ASSIGN_OR_RETURN(std::string server_key, x25519_of(options.coordinator_key));
  std::shared_ptr<void> context = options.context;
  if (!context) {
    ASSIGN_OR_RETURN(context, make_zmq_context());
  }
  return std::unique_ptr<ClientTransport>(std::make_unique<ZmqClient>(
      identity, std::move(options), std::move(server_key), std::move(context)));
}

}  // namespace

Result<std::shared_ptr<void>> share_zmq_context(std::size_t clients) {
  return make_zmq_context(static_cast<int>(clients * kSocketsOfClient));
}

Result<std::unique_ptr<ClientTransport>> make_zmq_client(const Identity& identity,
                                                         const ClientOptions& options) {
  for (const Endpoint endpoint : kAllEndpoints) TRY(check_url(options.endpoints.of(endpoint)));
  return make_client(identity, options);
}

Result<std::unique_ptr<ClientTransport>> make_zmq_peer_client(const Identity& identity,
                                                              const std::string& url,
                                                              const std::string& key,
                                                              std::shared_ptr<void> context) {
  TRY(check_url(url));
  ClientOptions options{.endpoints = {}, .coordinator_key = key, .context = std::move(context)};
  options.endpoints.peer = url;
  return make_client(identity, std::move(options));
}

}  // namespace skerry::protocol
