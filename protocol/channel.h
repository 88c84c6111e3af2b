// SPDX-License-Identifier: Apache-2.0
// One end of the socket pair between a daemon and its engine. A frame is a
// u32-LE length and a message; a descriptor (SCM_RIGHTS) may accompany it. This
// code knows neither ZeroMQ nor LibTorch.
//
// The descriptor is non-blocking; both directions are buffered.
// THREADS: one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace google::protobuf {
class MessageLite;
}

namespace skerry::protocol {

class Channel {
 public:
  struct Frame {
    std::string bytes;    // for parse_engine_request / parse_engine_event
    UniqueFd descriptor;  // accompanied this frame; empty: none
  };

  // Takes ownership of a connected SOCK_STREAM descriptor (the child's
  // `--channel FD`). Makes it non-blocking and close-on-exec.
  explicit Channel(UniqueFd fd);
  Channel(Channel&&) noexcept = default;
  Channel& operator=(Channel&&) noexcept = default;

  // RETURNS: a connected pair of descriptors, both close-on-exec. The child
  // clears that flag on its own end.
  static Result<std::pair<UniqueFd, UniqueFd>> make_pair();

  int fd() const {
    return fd_.get();
  }  // for a poll: readable → receive, writable while wants_write → flush

  // Queues the message and writes what the socket accepts. The descriptor is
  // duplicated; the caller keeps its own.
  // ON FAILURE: kExhausted if kChannelQueueBytes already wait; nothing is
  // queued then. kUnavailable once the other side is gone. kInvalid if the
  // message exceeds kEngineMessageBytes.
  Result<void> send(const google::protobuf::MessageLite& message, int descriptor = -1);
  Result<void> send_bytes(std::string_view bytes, int descriptor = -1);
  Result<void> flush();
  bool wants_write() const { return !outgoing_.empty(); }
  // Waits until everything is written.
  // ON FAILURE: kTimeout, kUnavailable.
  Result<void> flush_all(Duration timeout);

  // RETURNS: every complete frame that has arrived, without waiting; empty if
  // there is none. Frames that arrived before the other side closed come first.
  // ON FAILURE: kUnavailable once the other side closed. kCorrupt for a frame
  // over kEngineMessageBytes: close the channel.
  Result<std::vector<Frame>> receive();
  // Waits until receive() has a frame or the end to report. A negative timeout
  // never expires.
  // RETURNS: false if the timeout passed.
  Result<bool> wait_readable(Duration timeout);

 private:
  struct Outgoing {
    std::string bytes;
    UniqueFd descriptor;
    std::size_t written = 0;
  };
  struct Arrived {  // a descriptor, and the stream offsets of the read that brought it
    UniqueFd descriptor;
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
  };
  Result<void> read_available();
  Result<std::vector<Frame>> take_frames();

  UniqueFd fd_;
  std::deque<Outgoing> outgoing_;
  std::size_t outgoing_bytes_ = 0;
  std::string incoming_;
  std::uint64_t incoming_offset_ = 0;  // stream offset of incoming_[0]
  std::deque<Arrived> arrived_;
  bool ended_ = false;
};

}  // namespace skerry::protocol
