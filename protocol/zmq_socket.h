// SPDX-License-Identifier: Apache-2.0
// ZeroMQ's C interface as values with one owner. Private to this folder.
// THREADS: one at a time, except for the context.
#pragma once

#include <zmq.h>

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "protocol/endpoints.h"
#include "protocol/identity.h"

namespace skerry::protocol {

Error zmq_error(std::string_view doing);  // from zmq_errno

// Starts the context's threads at once: libzmq ends the process if it cannot
// start them, and that must happen at a program's start. The context ends with
// its last owner, once every socket is closed and pending messages left or
// timed out.
// ON FAILURE: kIo: the process has no descriptor left.
inline constexpr int kContextSockets = 128;
Result<std::shared_ptr<void>> make_zmq_context(int sockets = kContextSockets);

class ZmqSocket {
 public:
  // ON FAILURE: kIo: the process has no descriptor left or the context no
  // socket. Both are temporary: retry later.
  static Result<ZmqSocket> open(std::shared_ptr<void> context, int type);
  ~ZmqSocket() { close(); }
  ZmqSocket(ZmqSocket&& other) noexcept;
  ZmqSocket& operator=(ZmqSocket&& other) noexcept;

  void* get() const { return socket_; }
  void close();
  void set(int option, int value);
  void set(int option, std::string_view value);
  void set_int64(int option, std::int64_t value);
  int descriptor()
      const;  // readable once something may have happened; then, and after any use, look with can()
  bool can(
      short events);  // ZMQ_POLLIN, ZMQ_POLLOUT; also takes in what the I/O thread has announced

 private:
  ZmqSocket(std::shared_ptr<void> context, void* socket)
      : context_(std::move(context)), socket_(socket) {}
  std::shared_ptr<void> context_;
  void* socket_ = nullptr;
};

// One frame.
class ZmqFrame {
 public:
  ZmqFrame();
  explicit ZmqFrame(std::string_view bytes);  // without memory for them, send() returns ENOMEM
  ~ZmqFrame() { zmq_msg_close(&message_); }
  ZmqFrame(const ZmqFrame&) = delete;
  ZmqFrame& operator=(const ZmqFrame&) = delete;

  bool receive(ZmqSocket& socket);  // false: nothing there
  int send(ZmqSocket& socket,
           // 0, or the error number; on error the caller keeps the frame
           bool more = false);
  bool is_complete() const { return complete_; }  // else there was no memory for its bytes
  bool more() const { return zmq_msg_more(&message_) != 0; }
  std::string_view bytes();
  std::string property(const char* name);  // "User-Id", "Peer-Address"; empty: none
  int descriptor();                        // of the connection; −1: unknown. Body frames only

 private:
  zmq_msg_t message_;
  bool complete_ = true;
};

// Options both sides share: queues, sizes, handshake, heartbeats (a ping a
// second, rarer above a thousand `connections`), CURVE keys.
void set_connection_options(ZmqSocket& socket, Endpoint endpoint, const Identity& identity,
                            std::size_t connections);

// The events of a socket's connections, from its monitor. They come in the
// order in which they happened.
struct ZmqMonitorEvent {
  int kind = 0;   // ZMQ_EVENT_…
  int value = 0;  // descriptor or error
};

class ZmqMonitor {
 public:
  // LIFETIME: `watched` must outlive the monitor. It may move meanwhile.
  // ON FAILURE: as ZmqSocket::open.
  static Result<ZmqMonitor> open(const std::shared_ptr<void>& context, ZmqSocket& watched,
                                 int events);
  ZmqMonitor(ZmqMonitor&& other) noexcept
      : socket_(std::move(other.socket_)), watched_(std::exchange(other.watched_, nullptr)) {}
  ZmqMonitor& operator=(ZmqMonitor&&) = delete;
  ~ZmqMonitor();

  ZmqSocket& socket() { return socket_; }
  const ZmqSocket& socket() const { return socket_; }
  std::vector<ZmqMonitorEvent> drain();

 private:
  ZmqMonitor(ZmqSocket socket, void* watched) : socket_(std::move(socket)), watched_(watched) {}
  ZmqSocket socket_;
  void* watched_ = nullptr;
};

// Milliseconds for zmq_poll, rounded up; −1 for a negative duration.
long poll_milliseconds(Duration timeout);
// Adds descriptors to wait for, and reads afterwards which are ready.
void add_descriptors(std::vector<zmq_pollitem_t>& items, std::span<const int> readable);
std::vector<int> ready_descriptors(std::span<const zmq_pollitem_t> items);

}  // namespace skerry::protocol
