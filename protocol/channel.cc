// SPDX-License-Identifier: Apache-2.0
#include "protocol/channel.h"

#include <fcntl.h>
#include <google/protobuf/message_lite.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "base/text.h"
#include "protocol/limits.h"

namespace skerry::protocol {
namespace {

constexpr std::size_t kHeaderBytes = 4;
constexpr std::size_t kReadBytes = 64 << 10;
constexpr std::size_t kDescriptorsPerRead = 8;

std::string header_of(std::size_t size) {
  std::string header(kHeaderBytes, '\0');
  for (std::size_t i = 0; i < kHeaderBytes; ++i) header[i] = static_cast<char>(size >> (8 * i));
  return header;
}

std::size_t size_of(std::string_view header) {
  std::size_t size = 0;
  for (std::size_t i = 0; i < kHeaderBytes; ++i) {
    size |= std::size_t{static_cast<unsigned char>(header[i])} << (8 * i);
  }
  return size;
}

Error gone() {
  return fail(ErrorCode::kUnavailable, "the other side of the engine channel is closed");
}

// One sendmsg; the descriptor accompanies its first byte.
ssize_t send_part(int fd, std::string_view bytes, int descriptor) {
  iovec part{const_cast<char*>(bytes.data()), bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  if (descriptor >= 0) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &descriptor, sizeof(int));
  }
  return ::sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

std::vector<UniqueFd> descriptors_of(msghdr& message) {
  std::vector<UniqueFd> found;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof(int));
      found.emplace_back(fd);
    }
  }
  return found;
}

int milliseconds(Duration timeout) {
  if (timeout < Duration::zero()) return -1;
  return static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(timeout).count());
}

Result<bool> wait_for(int fd, short events, Duration timeout) {
  pollfd item{fd, events, 0};
  int ready = 0;
  do {
    ready = ::poll(&item, 1, milliseconds(timeout));
  } while (ready < 0 && errno == EINTR);
  if (ready < 0)
    return fail(ErrorCode::kIo, text("poll of the engine channel: ", std::strerror(errno)));
  return ready > 0;
}

}  // namespace

Channel::Channel(UniqueFd fd) : fd_(std::move(fd)) {
  SKERRY_CHECK(fd_.get() >= 0, "a channel needs a descriptor");
  ::fcntl(fd_.get(), F_SETFL, ::fcntl(fd_.get(), F_GETFL) | O_NONBLOCK);
  ::fcntl(fd_.get(), F_SETFD, FD_CLOEXEC);
}

Result<std::pair<UniqueFd, UniqueFd>> Channel::make_pair() {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    return fail(ErrorCode::kIo, text("no socket pair for the engine: ", std::strerror(errno)));
  }
  return std::pair{UniqueFd(ends[0]), UniqueFd(ends[1])};
}

Result<void> Channel::send(const google::protobuf::MessageLite& message, int descriptor) {
  return send_bytes(message.SerializeAsString(), descriptor);
}

Result<void> Channel::send_bytes(std::string_view bytes, int descriptor) {
  if (bytes.size() > kEngineMessageBytes) {
    return fail(ErrorCode::kInvalid, text("engine message of ", human_bytes(bytes.size()),
                                          ", the limit is ", human_bytes(kEngineMessageBytes)));
  }
  if (outgoing_bytes_ + bytes.size() > kChannelQueueBytes) {
    return fail(ErrorCode::kExhausted,
                text(human_bytes(outgoing_bytes_), " wait for the engine channel already"));
  }
  UniqueFd copy;
  if (descriptor >= 0) {
    copy = UniqueFd(::fcntl(descriptor, F_DUPFD_CLOEXEC, 0));
    if (!copy)
      return fail(ErrorCode::kIo, text("cannot duplicate a descriptor: ", std::strerror(errno)));
  }
  outgoing_bytes_ += bytes.size();
  outgoing_.push_back({header_of(bytes.size()).append(bytes), std::move(copy)});
  return flush();
}

Result<void> Channel::flush() {
  while (!outgoing_.empty()) {
    Outgoing& next = outgoing_.front();
    const ssize_t sent = send_part(fd_.get(), std::string_view(next.bytes).substr(next.written),
                                   next.descriptor.get());
    if (sent < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return {};
      if (errno == EPIPE || errno == ECONNRESET) return gone();
      return fail(ErrorCode::kIo, text("writing to the engine channel: ", std::strerror(errno)));
    }
    next.descriptor.reset();  // it went with the first byte
    next.written += static_cast<std::size_t>(sent);
    if (next.written < next.bytes.size()) continue;
    outgoing_bytes_ -= next.bytes.size() - kHeaderBytes;
    outgoing_.pop_front();
  }
  return {};
}

Result<void> Channel::flush_all(Duration timeout) {
  TRY(flush());
  while (wants_write()) {
    ASSIGN_OR_RETURN(const bool ready, wait_for(fd_.get(), POLLOUT, timeout));
    if (!ready)
      return fail(ErrorCode::kTimeout, "the other side of the engine channel does not read");
    TRY(flush());
  }
  return {};
}

Result<bool> Channel::wait_readable(Duration timeout) {
  return wait_for(fd_.get(), POLLIN, timeout);
}

Result<void> Channel::read_available() {
  // A read ends where the stream delivers a descriptor. So the descriptor of a
  // read belongs to the last frame that starts in it.
  std::string buffer(kReadBytes, '\0');
  while (!ended_ && incoming_.size() <= kEngineMessageBytes + kHeaderBytes) {
    iovec part{buffer.data(), buffer.size()};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(kDescriptorsPerRead * sizeof(int))> control{};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    const ssize_t got = ::recvmsg(fd_.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return {};
    if (got < 0 && errno != ECONNRESET) {
      return fail(ErrorCode::kIo, text("reading the engine channel: ", std::strerror(errno)));
    }
    if (got <= 0) {
      ended_ = true;
      return {};
    }
    const std::uint64_t begin = incoming_offset_ + incoming_.size();
    incoming_.append(buffer.data(), static_cast<std::size_t>(got));
    for (UniqueFd& descriptor : descriptors_of(message)) {
      arrived_.push_back({std::move(descriptor), begin, begin + static_cast<std::uint64_t>(got)});
    }
  }
  return {};
}

Result<std::vector<Channel::Frame>> Channel::take_frames() {
  std::vector<Frame> frames;
  std::size_t at = 0;
  while (incoming_.size() - at >= kHeaderBytes) {
    const std::size_t size = size_of(std::string_view(incoming_).substr(at, kHeaderBytes));
    if (size > kEngineMessageBytes) {
      return fail(ErrorCode::kCorrupt,
                  text("a frame of ", human_bytes(size), " on the engine channel, the limit is ",
                       human_bytes(kEngineMessageBytes)));
    }
    if (incoming_.size() - at - kHeaderBytes < size) break;
    Frame frame{incoming_.substr(at + kHeaderBytes, size), {}};
    const std::uint64_t start = incoming_offset_ + at;
    const std::uint64_t next = start + kHeaderBytes + size;
    if (!arrived_.empty() && start >= arrived_.front().begin && start < arrived_.front().end &&
        next >= arrived_.front().end) {
      frame.descriptor = std::move(arrived_.front().descriptor);
      arrived_.pop_front();
    }
    frames.push_back(std::move(frame));
    at += kHeaderBytes + size;
  }
  incoming_.erase(0, at);
  incoming_offset_ += at;
  // A descriptor that no frame can claim breaks the rules: drop it rather than
  // give it to the wrong frame.
  while (!arrived_.empty() && arrived_.front().end <= incoming_offset_) arrived_.pop_front();
  return frames;
}

Result<std::vector<Channel::Frame>> Channel::receive() {
  TRY(read_available());
  ASSIGN_OR_RETURN(std::vector<Frame> frames, take_frames());
  if (frames.empty() && ended_) return gone();
  return frames;
}

}  // namespace skerry::protocol
