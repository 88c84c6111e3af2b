// SPDX-License-Identifier: Apache-2.0
#include "base/try_training.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace skerry {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Training, IsTriedOnEachCardAlone) {
  std::vector<std::vector<std::string>> environments;
  const RunProgram run = [&](const std::vector<std::string>& words, const OnLine& on_line,
                             const RunOptions& options) -> Result<int> {
    EXPECT_THAT(words, ElementsAre("engine", "check", "--device", "0"));
    environments.push_back(options.environment);
    if (environments.size() == 1) return 0;
    on_line("CUDA error: unspecified launch failure");
    return 1;
  };
  const auto troubles =
      try_training("engine", {{"A", "GPU-a", 1, "9.0"}, {"B", "GPU-b", 1, "8.6"}}, run, {}).value();
  EXPECT_THAT(environments, ElementsAre(ElementsAre("CUDA_VISIBLE_DEVICES=GPU-a"),
                                        ElementsAre("CUDA_VISIBLE_DEVICES=GPU-b")));
  ASSERT_EQ(troubles.size(), 1U);
  EXPECT_THAT(troubles[0].found,
              AllOf(HasSubstr("cannot train on B (GPU-b, compute capability 8.6)"),
                    HasSubstr("unspecified launch failure")));
  EXPECT_THAT(troubles[0].todo, HasSubstr("CUDA_VISIBLE_DEVICES=GPU-a"));
}

TEST(Training, IsTriedOnTheCpuWhereThereIsNoCard) {
  const RunProgram run = [](const std::vector<std::string>& words, const OnLine&,
                            const RunOptions&) -> Result<int> {
    EXPECT_THAT(words, ElementsAre("engine", "check", "--device", "-1"));
    return 132;
  };
  const auto troubles = try_training("engine", {}, run, {}).value();
  ASSERT_EQ(troubles.size(), 1U);
  EXPECT_THAT(troubles[0].found,
              AllOf(HasSubstr("on the CPU"), HasSubstr("ended with status 132")));
}

}  // namespace
}  // namespace skerry
