// SPDX-License-Identifier: Apache-2.0
#include "protocol/peer_table.h"

#include <gtest/gtest.h>

namespace skerry::protocol {
namespace {

std::string id(unsigned number) {
  std::string bytes(5, '\0');
  for (int i = 0; i < 4; ++i) bytes[4 - i] = static_cast<char>(number >> (8 * i));
  return bytes;
}

Peer peer(unsigned number, int descriptor, std::string key = "key") {
  return {id(number), std::move(key), descriptor};
}

std::vector<std::string> ids(const std::vector<Peer>& peers) {
  std::vector<std::string> all;
  for (const Peer& one : peers) all.push_back(one.connection);
  return all;
}

const std::vector<std::string> kNone;

TEST(PeerTable, AClosedDescriptorNamesItsPeerOnce) {
  PeerTable table;
  EXPECT_EQ(ids(table.accepted(20)), kNone);
  EXPECT_EQ(ids(table.message(peer(1, 20, "ada"))), kNone);
  const auto over = table.disconnected(20);
  ASSERT_EQ(over.size(), 1u);
  EXPECT_EQ(over[0].public_key, "ada");
  EXPECT_EQ(ids(table.disconnected(20)), kNone);
  EXPECT_TRUE(table.is_over(id(1)));
}

TEST(PeerTable, ADescriptorUsedAgainIsNotTheOldPeer) {
  PeerTable table;
  table.accepted(20);
  table.message(peer(1, 20));
  EXPECT_EQ(ids(table.accepted(20)), std::vector{id(1)});  // its end was missed
  EXPECT_EQ(ids(table.message(peer(2, 20))), kNone);
  EXPECT_EQ(ids(table.disconnected(20)), std::vector{id(2)});
}

TEST(PeerTable, AStaleEndDoesNotTouchTheNewcomer) {
  PeerTable table;
  table.accepted(20);
  table.message(peer(1, 20));
  EXPECT_EQ(ids(table.disconnected(20)), std::vector{id(1)});
  table.accepted(20);
  EXPECT_EQ(ids(table.message(peer(2, 20))), kNone);
  // A last message of the first, read late: nothing happens to the second.
  EXPECT_EQ(ids(table.message(peer(1, 20))), kNone);
  EXPECT_NE(table.find(id(2)), nullptr);
}

TEST(PeerTable, AMessageThatOutlivedItsUnseenConnection) {
  PeerTable table;
  table.accepted(20);
  table.disconnected(20);
  EXPECT_EQ(ids(table.message(peer(1, 20))), std::vector{id(1)});
  // The same with a newcomer on the descriptor that is known already.
  table.accepted(20);
  table.message(peer(3, 20));
  EXPECT_EQ(ids(table.message(peer(2, 20))), std::vector{id(2)});
  EXPECT_NE(table.find(id(3)), nullptr);
  // And with one that has not spoken yet: the old one is replaced when it does.
  table.disconnected(20);
  table.accepted(20);
  EXPECT_EQ(ids(table.message(peer(4, 20))), kNone);
  EXPECT_EQ(ids(table.message(peer(5, 20))), std::vector{id(4)});
}

TEST(PeerTable, CountsWrap) {
  PeerTable table;
  table.message(peer(0xffffffffU, 20));
  EXPECT_EQ(ids(table.message(peer(0, 20))), std::vector{id(0xffffffffU)});
}

TEST(PeerTable, WhatWeThrowOutIsOver) {
  PeerTable table;
  table.message(peer(1, 20));
  ASSERT_TRUE(table.forget(id(1)));
  EXPECT_FALSE(table.forget(id(1)));
  EXPECT_TRUE(table.is_over(id(1)));
  EXPECT_EQ(ids(table.disconnected(20)), kNone);
}

}  // namespace
}  // namespace skerry::protocol
