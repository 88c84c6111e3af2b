// SPDX-License-Identifier: Apache-2.0
#include "coordinator/rooms/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace skerry::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

PlaceableExpert expert(std::uint32_t index, std::size_t copies, const std::string& source,
                       const std::vector<std::string>& current = {}) {
  PlaceableExpert expert;
  expert.id = {RunId("r"), index};
  expert.copies = copies;
  expert.source = NodeId(source);
  for (const std::string& node : current) expert.current.emplace_back(node);
  return expert;
}

PlaceableNode node(const std::string& id, const std::string& host, bool is_spare = false) {
  return {.id = NodeId(id), .host = host, .is_spare = is_spare};
}

std::vector<std::string> copies(const Placement& placement) {
  std::vector<std::string> ids;
  for (const NodeId& id : placement.copies) ids.push_back(id.str());
  return ids;
}

TEST(Placement, IsOnHostsApartAndNeverWhereItIsCommitted) {
  const std::vector<PlaceableNode> nodes = {node("a", "x"), node("b", "x"), node("c", "y"),
                                            node("d", "y"), node("e", "z"), node("f", "own")};
  EXPECT_THAT(copies(place({expert(0, 4, "a")}, nodes, "own", 64)[0]), ElementsAre("c", "e"));
  EXPECT_THAT(copies(place({expert(0, 1, "a")}, nodes, "own", 64)[0]), ElementsAre("c"));
  EXPECT_THAT(copies(place({expert(0, 1, "a")}, {nodes[0], nodes[1]}, "own", 64)[0]), IsEmpty());
  // Of whom no machine is known stands alone.
  EXPECT_THAT(
      copies(place({expert(0, 9, "a")}, {node("a", ""), node("b", ""), node("c", "")}, "", 64)[0]),
      ElementsAre("b", "c"));
}

TEST(Placement, StaysWhereItIsAsLongAsItMay) {
  std::vector<PlaceableNode> nodes = {node("a", "a"), node("b", "b", true), node("c", "c")};
  EXPECT_THAT(copies(place({expert(0, 1, "a", {"c"})}, nodes, "", 64)[0]), ElementsAre("c"));
  nodes[2].may_take = false;
  EXPECT_THAT(copies(place({expert(0, 1, "a", {"c"})}, nodes, "", 64)[0]), ElementsAre("c"));
  nodes[2].may_keep = false;
  EXPECT_THAT(copies(place({expert(0, 1, "a", {"c"})}, nodes, "", 64)[0]), ElementsAre("b"));
  PlaceableExpert avoids = expert(0, 1, "a", {"b"});
  avoids.avoid.insert(NodeId("b"));
  EXPECT_THAT(copies(place({avoids}, nodes, "", 64)[0]), IsEmpty());
}

TEST(Placement, GoesToSparesFirstAndSharesTheLoad) {
  const std::vector<PlaceableNode> nodes = {node("a", "a"), node("b", "b"), node("c", "c", true),
                                            node("d", "d", true)};
  const auto placed = place(
      {expert(0, 1, "a"), expert(1, 1, "b"), expert(2, 1, "a"), expert(3, 2, "b")}, nodes, "", 64);
  EXPECT_THAT(copies(placed[0]), ElementsAre("c"));
  EXPECT_THAT(copies(placed[1]), ElementsAre("d"));
  EXPECT_THAT(copies(placed[2]), ElementsAre("c"));
  EXPECT_THAT(copies(placed[3]), ElementsAre("d", "c"));
  const auto bounded = place({expert(0, 1, "a"), expert(1, 1, "b"), expert(2, 1, "a")},
                             {node("a", "a"), node("c", "c", true)}, "", 2);
  EXPECT_THAT(copies(bounded[2]), IsEmpty()) << "a node holds replicas of so many experts at most";
}

TEST(Placement, ASpareStandsByForWhatIsTrained) {
  const std::vector<PlaceableNode> nodes = {node("a", "a"), node("b", "b"), node("c", "c", true)};
  PlaceableExpert trained = expert(0, 1, "a", {"b"});
  trained.wants_spare = true;
  const Placement placed = place({trained}, nodes, "", 64)[0];
  EXPECT_THAT(copies(placed), ElementsAre("b"));
  EXPECT_EQ(placed.spare, NodeId("c"));
  trained.current.emplace_back("c");
  EXPECT_EQ(place({trained}, nodes, "", 64)[0].spare, NodeId("c"));
  trained.current = {NodeId("c")};
  EXPECT_FALSE(place({trained}, nodes, "", 64)[0].spare) << "it holds a copy already";
  EXPECT_EQ(place({trained}, nodes, "", 64)[0].stands_by, NodeId("c"));
  trained.copies = 0;
  trained.current.clear();
  const Placement alone = place({trained}, nodes, "", 64)[0];
  EXPECT_THAT(copies(alone), IsEmpty()) << "no commit waits for it";
  EXPECT_EQ(alone.spare, NodeId("c"));
  EXPECT_EQ(alone.stands_by, NodeId("c"));
}

}  // namespace
}  // namespace skerry::coordinator
