// SPDX-License-Identifier: Apache-2.0
#include <sys/socket.h>

#include "base/clean_text.h"
#include "protocol/channel.h"
#include "protocol/limits.h"
#include "protocol/validate_engine.h"
#include "tests/fuzz/sane.h"
#include "tests/fuzz/targets.h"

namespace skerry::fuzz {
namespace {

using namespace protocol;

template <class Message>
Verdict judge(std::string_view bytes, Result<Message> (*parse)(std::string_view)) {
  const Result<Message> parsed = parse(bytes);
  if (!parsed) return Verdict::kRefused;
  check_sane(*parsed);
  check_comes_back(*parsed, parse);
  return Verdict::kAccepted;
}

// The bytes as the other side of the channel wrote them before it closed.
// Frames that come out are the bytes, cut up.
Verdict frames(std::string_view bytes) {
  constexpr std::size_t kHeaderBytes = 4;
  auto ends = Channel::make_pair();
  SKERRY_CHECK(ends.has_value(), "no socket pair");
  Channel channel(std::move(ends->first));
  const ssize_t sent =
      ::send(ends->second.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  bytes = bytes.substr(0, sent < 0 ? 0 : static_cast<std::size_t>(sent));
  ends->second = UniqueFd();
  Verdict verdict = Verdict::kRefused;
  for (auto arrived = channel.receive(); arrived; arrived = channel.receive()) {
    for (const Channel::Frame& frame : *arrived) {
      SKERRY_CHECK(frame.bytes.size() <= kEngineMessageBytes, frame.bytes.size(),
                   " bytes in a frame");
      SKERRY_CHECK(
          bytes.size() >= kHeaderBytes && bytes.substr(kHeaderBytes).starts_with(frame.bytes),
          "a frame of other bytes than were sent");
      bytes.remove_prefix(kHeaderBytes + frame.bytes.size());
      verdict = Verdict::kAccepted;
    }
  }
  return verdict;
}

}  // namespace

// q: request, v: event, f: frames of the channel, t: text of a process.
Verdict engine(std::string_view input) {
  if (input.empty()) return Verdict::kRefused;
  const std::string_view bytes = input.substr(1);
  switch (input.front()) {
    case 'q':
      return judge(bytes, parse_engine_request);
    case 'v':
      return judge(bytes, parse_engine_event);
    case 'f':
      return frames(bytes);
    case 't': {
      const std::string clean = clean_text(bytes, kLogLineBytes);
      SKERRY_CHECK(clean.size() <= kLogLineBytes && clean_text(clean, kLogLineBytes) == clean,
                   "text is not clean");
      return Verdict::kAccepted;
    }
    default:
      return Verdict::kRefused;
  }
}

}  // namespace skerry::fuzz
