// SPDX-License-Identifier: Apache-2.0
#include "protocol/zmq_socket.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "base/text.h"
#include "protocol/limits.h"

namespace skerry::protocol {
namespace {

constexpr std::int64_t kSealBytes = 64;  // CURVE's own, around each frame: at least 33
constexpr int kHandshakeMs = 30'000;     // shorter ones waste work when a fleet dials at once
constexpr int kHeartbeatMs = 1'000;
constexpr int kLongestHeartbeatMs = 10'000;
constexpr int kHeartbeatTimeoutMs = 3'000;

struct Queues {
  int send;
  int receive;
};

Queues queues_of(Endpoint endpoint) {
  if (endpoint == Endpoint::kEnrol) return {kEnrolQueue, kEnrolQueue};
  if (endpoint == Endpoint::kControl) return {kControlQueue, kControlQueue};
  return {kBlobSendQueue, kBlobReceiveQueue};
}

// For each answered ping libzmq walks all timers that are due before its own: a
// thread can afford a thousand pings a second. A TTL would add another walk for
// every message, and show nothing that the other side's own pings do not.
int heartbeat_ms(std::size_t connections) {
  const std::size_t spread = std::min<std::size_t>(connections, kLongestHeartbeatMs);
  return std::max(kHeartbeatMs, static_cast<int>(spread));
}

}  // namespace

Error zmq_error(std::string_view doing) {
  const char* const advice =
      zmq_errno() == EMFILE || zmq_errno() == ENFILE ? "; raise LimitNOFILE (ulimit -n)" : "";
  return fail(ErrorCode::kIo, text(doing, ": ", zmq_strerror(zmq_errno()), advice));
}

Result<std::shared_ptr<void>> make_zmq_context(int sockets) {
  void* const made = zmq_ctx_new();
  if (made == nullptr) return zmq_error("cannot make a ZeroMQ context");
  const std::shared_ptr<void> context(made, [](void* ended) {
    while (zmq_ctx_term(ended) != 0 && zmq_errno() == EINTR) {
    }
  });
  zmq_ctx_set(made, ZMQ_IO_THREADS, 1);  // monitor events and messages then come in one order
  zmq_ctx_set(made, ZMQ_MAX_SOCKETS, sockets);
  TRY(ZmqSocket::open(context, ZMQ_PAIR));
  return context;
}

Result<ZmqSocket> ZmqSocket::open(std::shared_ptr<void> context, int type) {
  void* const made = zmq_socket(context.get(), type);
  if (made == nullptr) return zmq_error("cannot open a ZeroMQ socket");
  ZmqSocket socket(std::move(context), made);
  socket.set(ZMQ_LINGER, 0);
  return socket;
}

ZmqSocket::ZmqSocket(ZmqSocket&& other) noexcept
    : context_(std::move(other.context_)), socket_(std::exchange(other.socket_, nullptr)) {}

ZmqSocket& ZmqSocket::operator=(ZmqSocket&& other) noexcept {
  if (this != &other) {
    close();
    context_ = std::move(other.context_);
    socket_ = std::exchange(other.socket_, nullptr);
  }
  return *this;
}

void ZmqSocket::close() {
  if (socket_ != nullptr) zmq_close(std::exchange(socket_, nullptr));
}

void ZmqSocket::set(int option, int value) {
  SKERRY_CHECK(zmq_setsockopt(socket_, option, &value, sizeof value) == 0, "ZeroMQ option ", option,
               ": ", zmq_strerror(zmq_errno()));
}

void ZmqSocket::set(int option, std::string_view value) {
  SKERRY_CHECK(zmq_setsockopt(socket_, option, value.data(), value.size()) == 0, "ZeroMQ option ",
               option, ": ", zmq_strerror(zmq_errno()));
}

void ZmqSocket::set_int64(int option, std::int64_t value) {
  SKERRY_CHECK(zmq_setsockopt(socket_, option, &value, sizeof value) == 0, "ZeroMQ option ", option,
               ": ", zmq_strerror(zmq_errno()));
}

int ZmqSocket::descriptor() const {
  int fd = -1;
  std::size_t size = sizeof fd;
  SKERRY_CHECK(zmq_getsockopt(socket_, ZMQ_FD, &fd, &size) == 0,
               "ZeroMQ descriptor: ", zmq_strerror(zmq_errno()));
  return fd;
}

bool ZmqSocket::can(short events) {
  int ready = 0;
  std::size_t size = sizeof ready;
  return zmq_getsockopt(socket_, ZMQ_EVENTS, &ready, &size) == 0 && (ready & events) == events;
}

ZmqFrame::ZmqFrame() { zmq_msg_init(&message_); }

ZmqFrame::ZmqFrame(std::string_view bytes) {
  complete_ = zmq_msg_init_size(&message_, bytes.size()) == 0;
  if (!complete_) {
    zmq_msg_init(&message_);
    return;
  }
  if (!bytes.empty()) std::memcpy(zmq_msg_data(&message_), bytes.data(), bytes.size());
}

bool ZmqFrame::receive(ZmqSocket& socket) {
  int got = 0;
  do {
    got = zmq_msg_recv(&message_, socket.get(), ZMQ_DONTWAIT);
  } while (got < 0 && zmq_errno() == EINTR);
  return got >= 0;
}

int ZmqFrame::send(ZmqSocket& socket, bool more) {
  if (!complete_) return ENOMEM;
  while (zmq_msg_send(&message_, socket.get(), ZMQ_DONTWAIT | (more ? ZMQ_SNDMORE : 0)) < 0) {
    if (zmq_errno() != EINTR) return zmq_errno();
  }
  return 0;
}

std::string_view ZmqFrame::bytes() {
  return {static_cast<const char*>(zmq_msg_data(&message_)), zmq_msg_size(&message_)};
}

std::string ZmqFrame::property(const char* name) {
  const char* value = zmq_msg_gets(&message_, name);
  return value == nullptr ? std::string() : std::string(value);
}

int ZmqFrame::descriptor() { return zmq_msg_get(&message_, ZMQ_SRCFD); }

void set_connection_options(ZmqSocket& socket, Endpoint endpoint, const Identity& identity,
                            std::size_t connections) {
  socket.set(ZMQ_SNDHWM, queues_of(endpoint).send);
  socket.set(ZMQ_RCVHWM, queues_of(endpoint).receive);
  socket.set_int64(ZMQ_MAXMSGSIZE, static_cast<std::int64_t>(limit_bytes(endpoint)) + kSealBytes);
  socket.set(ZMQ_HANDSHAKE_IVL, kHandshakeMs);
  socket.set(ZMQ_HEARTBEAT_IVL, heartbeat_ms(connections));
  socket.set(ZMQ_HEARTBEAT_TIMEOUT, kHeartbeatTimeoutMs);
  socket.set(ZMQ_IPV6, 1);
  socket.set(ZMQ_CURVE_PUBLICKEY, identity.x25519_key());
  socket.set(ZMQ_CURVE_SECRETKEY, identity.x25519_secret());
}

Result<ZmqMonitor> ZmqMonitor::open(const std::shared_ptr<void>& context, ZmqSocket& watched,
                                    int events) {
  // ZeroMQ frees a closed socket's name later, on its own thread, so a name is
  // never used twice.
  static std::atomic<std::uint64_t> opened = 0;
  const std::string address = text("inproc://monitor-", ++opened);
  ASSIGN_OR_RETURN(ZmqSocket reader, ZmqSocket::open(context, ZMQ_PAIR));
  // Set no limit on the reading side, before it connects: at a limit the I/O
  // thread itself would wait.
  reader.set(ZMQ_RCVHWM, 0);
  if (zmq_socket_monitor(watched.get(), address.c_str(), events) != 0)
    return zmq_error("cannot monitor a ZeroMQ socket");
  if (zmq_connect(reader.get(), address.c_str()) != 0)
    return zmq_error("cannot read a ZeroMQ monitor");
  return ZmqMonitor(std::move(reader), watched.get());
}

// Stops the monitor before the reader closes. Otherwise the I/O thread would
// wait without end to write an event that no one reads, and block every
// connection of the context.
ZmqMonitor::~ZmqMonitor() {
  if (watched_ != nullptr) zmq_socket_monitor(watched_, nullptr, 0);
}

std::vector<ZmqMonitorEvent> ZmqMonitor::drain() {
  std::vector<ZmqMonitorEvent> events;
  while (true) {
    ZmqFrame event;
    if (!event.receive(socket_)) return events;
    ZmqFrame address;
    if (event.more()) address.receive(socket_);
    if (event.bytes().size() < 6) continue;
    std::uint16_t kind = 0;
    std::uint32_t value = 0;
    std::memcpy(&kind, event.bytes().data(), sizeof kind);
    std::memcpy(&value, event.bytes().data() + sizeof kind, sizeof value);
    events.push_back({kind, static_cast<int>(value)});
  }
}

long poll_milliseconds(Duration timeout) {
  if (timeout < Duration::zero()) return -1;
  constexpr Duration kLongest = std::chrono::hours(1);
  return std::chrono::ceil<std::chrono::milliseconds>(std::min(timeout, kLongest)).count();
}

void add_descriptors(std::vector<zmq_pollitem_t>& items, std::span<const int> readable) {
  for (const int fd : readable) items.push_back({nullptr, fd, ZMQ_POLLIN, 0});
}

std::vector<int> ready_descriptors(std::span<const zmq_pollitem_t> items) {
  std::vector<int> ready;
  for (const zmq_pollitem_t& item : items) {
    if (item.socket == nullptr && item.revents != 0) ready.push_back(item.fd);
  }
  return ready;
}

}  // namespace skerry::protocol
