// SPDX-License-Identifier: Apache-2.0
#include "cli/shell/output.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "cli/run/run_keys.h"
#include "cli/shell/exit_code.h"
#include "cli/shell/words.h"
#include "cli/testing/testing.h"

namespace skerry::cli {
namespace {

TEST(Table, ColumnsLineUpAndControlCharactersDoNotReachTheTerminal) {
  Table table({"NAME", "STATE"});
  table.add({"a", "ready"});
  table.add({"größer", "x\033[31m\ny"});
  std::ostringstream out;
  table.print(out, false);
  EXPECT_EQ(out.str(), "NAME    STATE\na       ready\ngrößer  x?[31m?y\n");
}

TEST(Printable, BadUtf8BecomesQuestionMarks) {
  EXPECT_EQ(printable("ok \xc3\xa4"), "ok \xc3\xa4");
  EXPECT_EQ(printable("\xc3("), "?(");
  EXPECT_EQ(printable("\xc0\xaf\xed\xa0\x80"), "?????");
  EXPECT_EQ(printable("\xc2\x9b"), "?");
}

TEST(Output, ObjectsAndListsCarryTheVersionFirst) {
  std::ostringstream out;
  print_items(out, Json());
  EXPECT_EQ(out.str(), "{\n  \"api_version\": \"skerry/v1\",\n  \"items\": []\n}\n");
  std::ostringstream line;
  print_line(line, {{"kind", "granted"}});
  EXPECT_EQ(line.str(), "{\"api_version\":\"skerry/v1\",\"kind\":\"granted\"}\n");
}

TEST(Output, NoColourWithoutATerminalOrWithNoColor) {
  FakeSurroundings around;
  EXPECT_FALSE(colour_wanted(around));
  around.terminal = true;
  EXPECT_TRUE(colour_wanted(around));
  around.variables["NO_COLOR"] = "1";
  EXPECT_FALSE(colour_wanted(around));
  EXPECT_EQ(painted("x", Paint::kBad, false), "x");
}

TEST(ExitCode, EachCodeOfTheContract) {
  EXPECT_EQ(exit_code(ErrorCode::kInvalid), 2);
  EXPECT_EQ(exit_code(ErrorCode::kNotFound), 3);
  EXPECT_EQ(exit_code(ErrorCode::kUnavailable), 4);
  EXPECT_EQ(exit_code(ErrorCode::kUnauthorised), 5);
  EXPECT_EQ(exit_code(ErrorCode::kConflict), 6);
  EXPECT_EQ(exit_code(ErrorCode::kTimeout), 7);
  for (const auto other :
       {ErrorCode::kFenced, ErrorCode::kExhausted, ErrorCode::kCorrupt, ErrorCode::kIo}) {
    EXPECT_EQ(exit_code(other), 1);
  }
}

TEST(Words, Durations) {
  EXPECT_EQ(parse_duration("90").value(), std::chrono::seconds(90));
  EXPECT_EQ(parse_duration("90s").value(), std::chrono::seconds(90));
  EXPECT_EQ(parse_duration("15m").value(), std::chrono::minutes(15));
  EXPECT_EQ(parse_duration("24h").value(), std::chrono::hours(24));
  EXPECT_EQ(parse_duration("7d").value(), std::chrono::hours(168));
  for (const auto bad : {"", "h", "-1h", "0", "1w", "1.5h", "9223372036854775807d"}) {
    EXPECT_FALSE(parse_duration(bad).has_value()) << bad;
  }
}

TEST(Words, TheNearestWordIsOnlySuggestedWhereItIsNear) {
  const std::string_view known[] = {"list", "show", "watch"};
  EXPECT_EQ(nearest_word("lst", known), "list");
  EXPECT_EQ(nearest_word("wacth", known), "watch");
  EXPECT_EQ(nearest_word("entirely-else", known), "");
}

}  // namespace
}  // namespace skerry::cli
