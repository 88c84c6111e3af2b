// SPDX-License-Identifier: Apache-2.0
// One end of the socket pair between a daemon and its engine: u32-LE length +
// message, with descriptors (SCM_RIGHTS) beside a message. Nothing here knows
// ZeroMQ or LibTorch.
//
// The descriptor is non-blocking; both directions are buffered. One thread at a
// time.
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
    UniqueFd descriptor;  // came with this frame; empty: none
  };

  // Takes over a connected SOCK_STREAM descriptor (the child's `--channel FD`)
  // and makes it non-blocking and close-on-exec.
  explicit Channel(UniqueFd fd);
  Channel(Channel&&) noexcept = default;
  Channel& operator=(Channel&&) noexcept = default;

  // A connected pair of descriptors, both close-on-exec: clear that on the
  // child's end in the child.
  static Result<std::pair<UniqueFd, UniqueFd>> make_pair();

  int fd() const {
    return fd_.get();
  }  // for a poll: readable → receive, writable while wants_write → flush

  // Queues the message and writes what the socket takes. The descriptor is
  // duplicated, the caller keeps its own. kExhausted where kChannelQueueBytes
  // are already waiting (nothing is queued then), kUnavailable once the other
  // side is gone, kInvalid for a message over kEngineMessageBytes.
  Result<void> send(const google::protobuf::MessageLite& message, int descriptor = -1);
  Result<void> send_bytes(std::string_view bytes, int descriptor = -1);
  Result<void> flush();
  bool wants_write() const { return !outgoing_.empty(); }
  // Waits until everything is written; kTimeout, kUnavailable.
  Result<void> flush_all(Duration timeout);

  // Every whole frame that has arrived, without waiting; empty where there is
  // none. Frames that came before the other side closed are returned first;
  // then kUnavailable. kCorrupt for a frame over kEngineMessageBytes: close the
  // channel.
  Result<std::vector<Frame>> receive();
  // Waits until receive has something to say (a frame, or the end). False: time
  // is up. Negative: no limit.
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
