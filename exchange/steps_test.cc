// SPDX-License-Identifier: Apache-2.0
// One end of the exchange, step by step, without a wire.
#include "exchange/exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/check.h"
#include "exchange/testing/testing.h"

namespace skerry::exchange {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

// Of a peer that speaks no maps, unless said otherwise.
pb::BlobMessage hello_of(std::uint32_t major, bool maps = false) {
  pb::BlobMessage message;
  *message.mutable_hello()->mutable_version() = protocol::own_version();
  message.mutable_hello()->mutable_version()->set_major(major);
  message.mutable_hello()->set_maps(maps);
  return message;
}

pb::BlobMessage request_of(std::uint64_t id) {
  pb::BlobMessage message;
  message.mutable_request()->set_id(id);
  message.mutable_request()->set_manifest(blake2b("object").raw());
  message.mutable_request()->set_hash(blake2b("chunk").raw());
  return message;
}

class ExchangeSteps : public testing::Test {
 protected:
  void meet(Exchange& exchange) {
    exchange.connected(peer_, now_);
    exchange.received(peer_, hello_of(protocol::own_version().major()), now_);
    (void)exchange.take_effects();
  }
  static std::size_t requests_in(const Effects& effects) {
    return static_cast<std::size_t>(
        std::count_if(effects.sends.begin(), effects.sends.end(),
                      [](const Send& send) { return send.message.has_request(); }));
  }
  // Of a chunk of file_of.
  pb::BlobMessage reply_to(const Send& send) const {
    int number = 0;
    while (blake2b(std::to_string(number)).raw() != send.message.request().hash()) ++number;
    return reply_to(send, std::to_string(number));
  }
  pb::BlobMessage reply_to(const Send& send, const std::string& data) const {
    pb::BlobMessage message;
    message.mutable_reply()->set_id(send.message.request().id());
    message.mutable_reply()->set_hash(send.message.request().hash());
    message.mutable_reply()->set_data(data);
    return message;
  }
  // Takes the exchange to the point where it asks for the chunks of `named`.
  Effects ask_for(Exchange& exchange, const storage::NamedManifest& named) {
    exchange.fetch({.object = named.name}, now_);
    Effects effects = exchange.take_effects();
    const auto asked = std::find_if(effects.sends.begin(), effects.sends.end(),
                                    [](const Send& send) { return send.message.has_request(); });
    SKERRY_CHECK(asked != effects.sends.end(), "the manifest is asked for");
    exchange.received(asked->peer, reply_to(*asked, named.encoded), now_);
    (void)exchange.take_effects();
    exchange.answered(ObjectOpened{named.name, std::vector<Hash>()}, now_);
    return exchange.take_effects();
  }
  storage::NamedManifest file_of(std::size_t chunks, std::uint32_t bytes) const {
    storage::Manifest manifest;
    manifest.name = "file";
    manifest.parts.push_back({std::string(storage::kPartFile), {}, {}});
    for (std::size_t i = 0; i < chunks; ++i)
      manifest.parts[0].chunks.push_back({blake2b(std::to_string(i)), bytes});
    return value_of(storage::encode_manifest(manifest));
  }

  PeerId peer_{"peer"};
  Now now_;
};

TEST_F(ExchangeSteps, a_connection_begins_with_the_hello) {
  Exchange exchange({.incarnation = 9});
  exchange.connected(peer_, now_);
  const Effects effects = exchange.take_effects();
  ASSERT_THAT(effects.sends, SizeIs(1));
  EXPECT_EQ(effects.sends[0].message.hello().incarnation(), 9U);
}

TEST_F(ExchangeSteps, nothing_is_heard_before_the_hello) {
  Exchange exchange({});
  exchange.connected(peer_, now_);
  exchange.fetch({.object = blake2b("object")}, now_);
  exchange.received(peer_, request_of(1), now_);
  Effects effects = exchange.take_effects();
  EXPECT_THAT(effects.jobs, IsEmpty());
  EXPECT_EQ(requests_in(effects), 0U);
  exchange.received(peer_, hello_of(protocol::own_version().major()), now_);
  exchange.received(peer_, request_of(1), now_);
  effects = exchange.take_effects();
  EXPECT_THAT(effects.jobs, SizeIs(1));
  EXPECT_EQ(requests_in(effects), 1U);
}

TEST_F(ExchangeSteps, another_version_is_refused) {
  Exchange exchange({});
  exchange.connected(peer_, now_);
  exchange.received(peer_, hello_of(protocol::own_version().major() + 1), now_);
  exchange.received(peer_, request_of(1), now_);
  const Effects effects = exchange.take_effects();
  EXPECT_THAT(effects.jobs, IsEmpty());
  ASSERT_THAT(effects.misbehaved, SizeIs(1));
  EXPECT_THAT(effects.misbehaved[0].reason, HasSubstr("speaks version"));
}

TEST_F(ExchangeSteps, the_window_holds_a_few_requests_of_each_peer) {
  Exchange exchange({});
  meet(exchange);
  const storage::NamedManifest named = file_of(50, 10);
  Effects effects = ask_for(exchange, named);
  EXPECT_EQ(requests_in(effects), Config().window_per_peer);
  exchange.received(peer_, reply_to(effects.sends[0]), now_);
  effects = exchange.take_effects();
  EXPECT_EQ(requests_in(effects), 1U);  // one came, one goes
  EXPECT_THAT(effects.jobs, SizeIs(1));
}

TEST_F(ExchangeSteps, the_window_counts_bytes_until_they_are_on_disk) {
  Config config;
  config.window_bytes = 3 * storage::kMaxChunkBytes;
  Exchange exchange(config);
  meet(exchange);
  const storage::NamedManifest named = file_of(50, storage::kMaxChunkBytes);
  Effects effects = ask_for(exchange, named);
  ASSERT_EQ(requests_in(effects), 3U);
  exchange.received(peer_, reply_to(effects.sends[0]), now_);
  effects = exchange.take_effects();
  EXPECT_EQ(requests_in(effects), 0U);  // it is still in memory
  ASSERT_THAT(effects.jobs, SizeIs(1));
  exchange.answered(ChunkWritten{named.name, std::get<WriteChunk>(effects.jobs[0]).chunk, {}},
                    now_);
  EXPECT_EQ(requests_in(exchange.take_effects()), 1U);
}

TEST_F(ExchangeSteps, a_slow_peer_cannot_hold_the_whole_window) {
  Config config;
  config.window_bytes = 4 * storage::kMaxChunkBytes;
  Exchange exchange(config);
  meet(exchange);
  const PeerId slow("slow");
  exchange.connected(slow, now_);
  exchange.received(slow, hello_of(protocol::own_version().major()), now_);
  (void)exchange.take_effects();
  const Effects effects = ask_for(exchange, file_of(50, storage::kMaxChunkBytes));
  const auto to_slow = std::count_if(effects.sends.begin(), effects.sends.end(),
                                     [&](const Send& send) { return send.peer == slow; });
  EXPECT_EQ(requests_in(effects), 4U);
  EXPECT_EQ(to_slow, 2);
}

TEST_F(ExchangeSteps, serving_is_bounded) {
  const Config config;
  Exchange exchange(config);
  meet(exchange);
  for (std::uint64_t id = 1; id <= config.serve_per_peer + 3; ++id)
    exchange.received(peer_, request_of(id), now_);
  const Effects effects = exchange.take_effects();
  EXPECT_THAT(effects.jobs, SizeIs(config.serve_reads));
  EXPECT_THAT(effects.misbehaved, SizeIs(3));
  // Each answer lets one that waits go to the disk.
  exchange.answered(perform(*std::make_unique<FolderChunkStore>("/nonexistent"), effects.jobs[0]),
                    now_);
  const Effects more = exchange.take_effects();
  EXPECT_THAT(more.jobs, SizeIs(1));
  ASSERT_THAT(more.sends, SizeIs(1));
  EXPECT_TRUE(more.sends[0].message.reply().missing());
}

TEST_F(ExchangeSteps, nothing_is_sent_to_a_peer_that_has_gone) {
  Exchange exchange({});
  meet(exchange);
  exchange.received(peer_, request_of(1), now_);
  const Effects effects = exchange.take_effects();
  exchange.disconnected(peer_, now_);
  exchange.answered(ChunkRead{peer_, 1, blake2b("object"), blake2b("chunk"), std::string("chunk")},
                    now_);
  EXPECT_THAT(exchange.take_effects().sends, IsEmpty());
}

TEST_F(ExchangeSteps, a_host_may_refuse_a_read) {
  Exchange exchange({});
  meet(exchange);
  exchange.received(peer_, request_of(1), now_);
  Effects effects = exchange.take_effects();
  exchange.answered(refuse(effects.jobs.at(0), fail(ErrorCode::kUnauthorised, "not yours")), now_);
  effects = exchange.take_effects();
  ASSERT_THAT(effects.sends, SizeIs(1));
  EXPECT_TRUE(effects.sends[0].message.reply().missing());
  EXPECT_TRUE(effects.sends[0].message.reply().data().empty());
}

// Two peers of this version; each says which chunks it has.
TEST_F(ExchangeSteps, the_rarest_chunk_goes_first) {
  Config config;
  config.window_per_peer = 1;
  Exchange exchange(config);
  const storage::NamedManifest named = file_of(9, 10);
  const PeerId other("other");
  const pb::BlobMessage hello = hello_of(protocol::own_version().major(), true);
  pb::BlobMessage map;
  map.mutable_map()->set_manifest(named.name.raw());
  for (const PeerId& peer : {peer_, other}) {
    exchange.connected(peer, now_);
    exchange.received(peer, hello, now_);
  }
  exchange.fetch({.object = named.name}, now_);
  Effects effects = exchange.take_effects();
  EXPECT_EQ(requests_in(effects), 0U);  // until it is known who has it
  map.mutable_map()->set_bits("\xff\x03");
  exchange.received(peer_, map, now_);
  effects = exchange.take_effects();
  ASSERT_THAT(effects.sends, SizeIs(1));
  map.mutable_map()->set_bits(std::string("\xdf\x03"));  // all but the fifth
  exchange.received(other, map, now_);
  exchange.received(peer_, reply_to(effects.sends[0], named.encoded), now_);
  exchange.answered(ObjectOpened{named.name, std::vector<Hash>()}, now_);
  for (const Send& send : exchange.take_effects().sends) {
    if (send.peer != peer_ || !send.message.has_request()) continue;
    EXPECT_EQ(send.message.request().hash(), blake2b("4").raw());
    return;
  }
  FAIL() << "nothing was asked of the one that has it";
}

TEST_F(ExchangeSteps, what_has_come_is_told_to_those_who_asked) {
  Exchange exchange({.window_per_peer = 9});
  meet(exchange);
  const PeerId curious("curious");
  exchange.connected(curious, now_);
  exchange.received(curious, hello_of(protocol::own_version().major(), true), now_);
  const storage::NamedManifest named = file_of(9, 10);
  const auto maps = [&] {
    std::vector<pb::ChunkMap> told;
    for (const Send& send : exchange.take_effects().sends) {
      if (send.peer == curious && send.message.has_map()) told.push_back(send.message.map());
    }
    return told;
  };
  pb::BlobMessage question;
  question.mutable_map_request()->set_manifest(named.name.raw());
  exchange.received(curious, question, now_);
  const Effects asked_of_disk = exchange.take_effects();
  ASSERT_THAT(asked_of_disk.jobs, SizeIs(1));
  exchange.answered(ObjectFound{curious, named.name, {}}, now_);
  std::vector<pb::ChunkMap> told = maps();
  ASSERT_THAT(told, SizeIs(1));
  EXPECT_TRUE(told[0].whole());

  Effects effects = ask_for(exchange, named);
  exchange.received(curious, question, now_);
  told = maps();
  ASSERT_THAT(told, SizeIs(1));
  EXPECT_TRUE(told[0].receiving());
  EXPECT_EQ(told[0].bits(), std::string("\1", 1));  // the manifest
  now_.boot += std::chrono::seconds(1);
  exchange.answered(ChunkWritten{named.name, blake2b("4"), {}}, now_);
  EXPECT_THAT(maps(), IsEmpty());  // nobody asked for that
  const auto five = std::find_if(effects.sends.begin(), effects.sends.end(), [](const Send& send) {
    return send.message.request().hash() == blake2b("4").raw();
  });
  ASSERT_NE(five, effects.sends.end());
  exchange.received(five->peer, reply_to(*five, "4"), now_);
  exchange.answered(ChunkWritten{named.name, blake2b("4"), {}}, now_);
  told = maps();
  ASSERT_THAT(told, SizeIs(1));
  EXPECT_THAT(told[0].added(), testing::ElementsAre(5U));
  exchange.cancel(named.name, now_);
  told = maps();
  ASSERT_THAT(told, SizeIs(1));
  EXPECT_FALSE(told[0].receiving());
}

TEST_F(ExchangeSteps, a_reply_that_nobody_asked_for_changes_nothing) {
  Exchange exchange({});
  meet(exchange);
  const Effects asked = ask_for(exchange, file_of(3, 1));
  pb::BlobMessage wrong_id = reply_to(asked.sends[0], "0");
  wrong_id.mutable_reply()->set_id(999'999);
  exchange.received(peer_, wrong_id, now_);
  pb::BlobMessage other_chunk = reply_to(asked.sends[0], "x");
  other_chunk.mutable_reply()->set_hash(blake2b("x").raw());
  exchange.received(peer_, other_chunk, now_);
  const Effects effects = exchange.take_effects();
  EXPECT_THAT(effects.jobs, IsEmpty());
  EXPECT_THAT(effects.misbehaved, IsEmpty());
}

// An answer to a request that was given up counts as well, but only with the
// bytes that its hash names.
TEST_F(ExchangeSteps, a_late_chunk_is_written_only_with_the_right_hash) {
  Config config;
  config.window_per_peer = 2;
  Exchange exchange(config);
  meet(exchange);
  const storage::NamedManifest named = file_of(2, 1);
  const Effects asked = ask_for(exchange, named);
  ASSERT_EQ(requests_in(asked), 2U);
  now_.boot += config.request_timeout + std::chrono::seconds(1);
  exchange.tick(now_);
  ASSERT_THAT(exchange.take_effects().stalled, SizeIs(1)) << "both were given up";

  exchange.received(peer_, reply_to(asked.sends[0], "x"), now_);
  EXPECT_THAT(exchange.take_effects().jobs, IsEmpty()) << "wrong bytes under the right name";
  pb::BlobMessage missing = reply_to(asked.sends[0], "");
  missing.mutable_reply()->set_missing(true);
  exchange.received(peer_, missing, now_);
  EXPECT_THAT(exchange.take_effects().jobs, IsEmpty());

  exchange.received(peer_, reply_to(asked.sends[1]), now_);
  const Effects effects = exchange.take_effects();
  ASSERT_THAT(effects.jobs, SizeIs(1)) << "what came late is as good";
  const WriteChunk& write = std::get<WriteChunk>(effects.jobs[0]);
  EXPECT_EQ(blake2b(write.bytes), write.chunk);
  EXPECT_EQ(write.chunk.raw(), asked.sends[1].message.request().hash());
}

}  // namespace
}  // namespace skerry::exchange
