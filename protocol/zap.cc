// SPDX-License-Identifier: Apache-2.0
#include "protocol/zap.h"

#include "base/check.h"
#include "base/text.h"

namespace skerry::protocol {
namespace {

constexpr std::string_view kVersion = "1.0";

// version, request id, domain, address, routing id, mechanism, credentials
constexpr std::size_t kRequestFrames = 7;

std::vector<std::string> receive_frames(ZmqSocket& socket) {
  std::vector<std::string> frames;
  bool more = true;
  while (more) {
    ZmqFrame frame;
    if (!frame.receive(socket)) break;
    frames.emplace_back(frame.bytes());
    more = frame.more();
  }
  return frames;
}

void send_frames(ZmqSocket& socket, std::span<const std::string_view> frames) {
  for (std::size_t i = 0; i < frames.size(); ++i)
    ZmqFrame(frames[i]).send(socket, i + 1 < frames.size());
}

}  // namespace

ZapHandler::ZapHandler(ZmqSocket socket, Decide decide)
    : socket_(std::move(socket)), decide_(std::move(decide)) {
  SKERRY_CHECK(zmq_bind(socket_.get(), "inproc://zeromq.zap.01") == 0, zmq_strerror(zmq_errno()));
}

void ZapHandler::answer_all() {
  while (true) {
    const std::vector<std::string> request = receive_frames(socket_);
    if (request.empty()) return;
    const bool known = request.size() == kRequestFrames && request[0] == kVersion &&
                       request[5] == "CURVE" && request[6].size() == kKeyBytes;
    const bool allowed = known && decide_(request[2], request[6], request[3]);
    const std::string user = allowed ? to_hex(request[6]) : std::string();
    const std::string_view id =
        request.size() > 1 ? std::string_view(request[1]) : std::string_view();
    const std::string_view answer[] = {
        kVersion, id, allowed ? "200" : "400", allowed ? "OK" : "not known", user, ""};
    send_frames(socket_, answer);
  }
}

}  // namespace skerry::protocol
