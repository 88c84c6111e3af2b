// SPDX-License-Identifier: Apache-2.0
#include "dashboard/board.h"

#include <gtest/gtest.h>

namespace skerry::dashboard {
namespace {

TEST(Board, ListsWhatChangedSinceAVersion) {
  Board board;
  std::uint64_t seen = 0;
  EXPECT_EQ(board.changes_since(seen), "");
  board.put_json("/api/v1/runs", "{}");
  board.put_json("/api/v1/nodes", "{}");
  EXPECT_EQ(board.changes_since(seen), R"({"/api/v1/nodes":2,"/api/v1/runs":1})");
  EXPECT_EQ(board.changes_since(seen), "");
  board.put_json("/api/v1/runs", "{}");  // the same
  EXPECT_EQ(board.changes_since(seen), "");
  board.put_json("/api/v1/runs", "{1}");
  EXPECT_EQ(board.changes_since(seen), R"({"/api/v1/runs":3})");
}

TEST(Board, MetricsAreNoNewsForViewers) {
  Board board;
  std::uint64_t seen = 0;
  board.put("/metrics", "text/plain", "up 1\n");
  EXPECT_EQ(board.changes_since(seen), "");
  EXPECT_EQ(board.find("/metrics")->body, "up 1\n");
}

TEST(Board, ADocumentOutlivesItsReplacement) {
  Board board;
  board.put_json("/a", "old");
  const auto held = board.find("/a");
  board.put_json("/a", "new");
  EXPECT_EQ(held->body, "old");
  EXPECT_EQ(board.find("/a")->body, "new");
}

TEST(Board, AliasesLeadOnUntilTheyAreRemoved) {
  Board board;
  board.put_json("/run/fashion", "f");
  board.put_json("/run/gone", "g");
  board.put_alias("/run/1", "/run/fashion");
  board.put_alias("/run/2", "/run/gone");
  EXPECT_EQ(board.find("/run/1")->body, "f");
  board.keep_only("/run/", {"/run/fashion", "/run/1"});
  EXPECT_EQ(board.find("/run/1")->body, "f");
  EXPECT_EQ(board.find("/run/gone"), nullptr);
  EXPECT_EQ(board.find("/run/2"), nullptr);
}

}  // namespace
}  // namespace skerry::dashboard
