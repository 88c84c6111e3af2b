// SPDX-License-Identifier: Apache-2.0
#include "base/programs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

namespace skerry {
namespace {

TEST(Programs, OneThatEndsItsOutputAndNotItselfIsNotWaitedFor) {
  const auto ran = run_and_read({"/bin/sh", "-c", "exec >&-; kill -STOP $$"},
                                [](const std::string&) {}, {.limit = std::chrono::milliseconds(1)});
  ASSERT_FALSE(ran.has_value());
  EXPECT_EQ(ran.error().code, ErrorCode::kTimeout);
}

TEST(Programs, TakeTheirEnvironmentOverOurs) {
  ::setenv("SKERRY_TEST_WORD", "ours", 1);
  std::string line;
  const auto ran = run_and_read({"/bin/sh", "-c", "echo $SKERRY_TEST_WORD; exit 3"},
                                [&](const std::string& word) { line = word; },
                                {.environment = {"SKERRY_TEST_WORD=theirs"}});
  ::unsetenv("SKERRY_TEST_WORD");
  EXPECT_EQ(ran.value(), 3);
  EXPECT_EQ(line, "theirs");
}

}  // namespace
}  // namespace skerry
