// SPDX-License-Identifier: Apache-2.0
#include "protocol/channel.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "protocol/engine.pb.h"
#include "protocol/limits.h"

namespace skerry::protocol {
namespace {

constexpr Duration kHang = std::chrono::seconds(30);

struct Pair {
  Channel a;
  Channel b;
};

Pair make() {
  auto ends = Channel::make_pair();
  EXPECT_TRUE(ends);
  return {Channel(std::move(ends->first)), Channel(std::move(ends->second))};
}

std::vector<Channel::Frame> receive_count(Channel& channel, Channel& sender, std::size_t count) {
  std::vector<Channel::Frame> all;
  while (all.size() < count) {
    EXPECT_TRUE(sender.flush());
    auto ready = channel.wait_readable(kHang);
    EXPECT_TRUE(ready && *ready);
    auto frames = channel.receive();
    EXPECT_TRUE(frames);
    if (!frames || !ready || !*ready) break;
    for (auto& frame : *frames) all.push_back(std::move(frame));
  }
  return all;
}

UniqueFd memory_of(const std::string& content) {
  UniqueFd fd(::memfd_create("test", MFD_CLOEXEC));
  EXPECT_EQ(::write(fd.get(), content.data(), content.size()),
            static_cast<ssize_t>(content.size()));
  return fd;
}

std::string content_of(const UniqueFd& fd) {
  std::string content(64, '\0');
  const ssize_t got = ::pread(fd.get(), content.data(), content.size(), 0);
  content.resize(got < 0 ? 0 : static_cast<std::size_t>(got));
  return content;
}

TEST(Channel, CarriesMessagesBothWays) {
  Pair pair = make();
  pb::EngineRequest request;
  request.mutable_stop()->set_finish_round(true);
  ASSERT_TRUE(pair.a.send(request));
  ASSERT_TRUE(pair.b.send_bytes(""));
  auto got = receive_count(pair.b, pair.a, 1);
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(got[0].bytes, request.SerializeAsString());
  EXPECT_FALSE(got[0].descriptor);
  got = receive_count(pair.a, pair.b, 1);
  EXPECT_EQ(got[0].bytes, "");
}

TEST(Channel, NothingThereIsNotAnError) {
  Pair pair = make();
  auto got = pair.a.receive();
  ASSERT_TRUE(got);
  EXPECT_TRUE(got->empty());
  auto ready = pair.a.wait_readable(Duration::zero());
  ASSERT_TRUE(ready);
  EXPECT_FALSE(*ready);
}

TEST(Channel, DescriptorComesWithItsOwnFrame) {
  Pair pair = make();
  // Frames before and after, in one burst; sizes over a socket buffer's segment
  // too.
  const UniqueFd one = memory_of("one");
  const UniqueFd two = memory_of("two");
  const std::string large(200'000, 'x');
  ASSERT_TRUE(pair.a.send_bytes("plain"));
  ASSERT_TRUE(pair.a.send_bytes("with one", one.get()));
  ASSERT_TRUE(pair.a.send_bytes("between"));
  ASSERT_TRUE(pair.a.send_bytes(large, two.get()));
  ASSERT_TRUE(pair.a.send_bytes("after"));
  auto got = receive_count(pair.b, pair.a, 5);
  ASSERT_EQ(got.size(), 5u);
  EXPECT_FALSE(got[0].descriptor);
  EXPECT_EQ(content_of(got[1].descriptor), "one");
  EXPECT_FALSE(got[2].descriptor);
  EXPECT_EQ(got[3].bytes, large);
  EXPECT_EQ(content_of(got[3].descriptor), "two");
  EXPECT_EQ(got[4].bytes, "after");
  EXPECT_FALSE(got[4].descriptor);
}

TEST(Channel, DescriptorOutlivesTheSendersOwn) {
  Pair pair = make();
  {
    const UniqueFd fd = memory_of("kept");
    ASSERT_TRUE(pair.a.send_bytes("take", fd.get()));
  }
  auto got = receive_count(pair.b, pair.a, 1);
  EXPECT_EQ(content_of(got[0].descriptor), "kept");
}

TEST(Channel, QueueIsBoundedAndLosesNothingItTook) {
  Pair pair = make();
  const std::string part(kEngineMessageBytes, 'y');
  std::size_t taken = 0;
  Result<void> sent;
  while ((sent = pair.a.send_bytes(part))) {
    ++taken;
    ASSERT_LT(taken, 1000u);
  }
  EXPECT_EQ(sent.error().code, ErrorCode::kExhausted);
  EXPECT_TRUE(pair.a.wants_write());
  auto got = receive_count(pair.b, pair.a, taken);
  ASSERT_EQ(got.size(), taken);
  for (const auto& frame : got) EXPECT_EQ(frame.bytes, part);
}

TEST(Channel, LastWordsArriveBeforeTheEnd) {
  Pair pair = make();
  ASSERT_TRUE(pair.a.send_bytes("last"));
  { Channel gone = std::move(pair.a); }
  auto got = pair.b.receive();
  ASSERT_TRUE(got);
  ASSERT_EQ(got->size(), 1u);
  got = pair.b.receive();
  ASSERT_FALSE(got);
  EXPECT_EQ(got.error().code, ErrorCode::kUnavailable);
  auto sent = pair.b.send_bytes("into the void");
  ASSERT_FALSE(sent);
  EXPECT_EQ(sent.error().code, ErrorCode::kUnavailable);
}

TEST(Channel, RefusesFramesOverTheLimit) {
  Pair pair = make();
  auto sent = pair.a.send_bytes(std::string(kEngineMessageBytes + 1, 'z'));
  ASSERT_FALSE(sent);
  EXPECT_EQ(sent.error().code, ErrorCode::kInvalid);
  const std::string header = "\xff\xff\xff\x7f";
  ASSERT_EQ(::write(pair.a.fd(), header.data(), header.size()), 4);
  auto got = pair.b.receive();
  ASSERT_FALSE(got);
  EXPECT_EQ(got.error().code, ErrorCode::kCorrupt);
}

}  // namespace
}  // namespace skerry::protocol
