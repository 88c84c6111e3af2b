// SPDX-License-Identifier: Apache-2.0
#include "diffusion/runtime/trace.h"

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "diffusion/runtime/speed.h"
#include "diffusion/testing/testing.h"
#include "diffusion/train/train.h"

namespace skerry::diffusion {
namespace {

using namespace testing;

class TraceTest : public ::testing::Test {
 protected:
  Trainer trainer() {
    auto made = Trainer::create(tiny_model(), tiny_training(),
                                {write_shard(folder_ / "shard", tiny_model(), 20)});
    EXPECT_TRUE(made) << (made ? "" : made.error().message);
    return std::move(*made);
  }
  // How often each name occurs among the events of a trace.
  static std::map<std::string, int> events(const std::string& path) {
    std::ifstream file(path);
    std::map<std::string, int> counted;
    const auto trace = nlohmann::json::parse(file);
    for (const auto& event : trace.at("traceEvents")) ++counted[event.value("name", "")];
    return counted;
  }
  TempFolder folder_;
};

TEST_F(TraceTest, HoldsThePhasesAndOperatorsOfItsSteps) {
  Trainer steps = trainer();
  ASSERT_TRUE(steps.step());
  auto trace = Trace::begin(/*on_card=*/false);
  ASSERT_TRUE(trace) << trace.error().message;
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(steps.step());
  ASSERT_TRUE(trace->write(folder_ / "trace.json"));
  ASSERT_TRUE(steps.step());  // after its end
  auto counted = events(folder_ / "trace.json");
  for (const char* phase : kPhases) EXPECT_EQ(counted[phase], 2) << phase;
  EXPECT_GE(counted["aten::bmm"], 2);
}

TEST_F(TraceTest, ANewOneTakesThePlaceOfAnOld) {
  Trainer steps = trainer();
  for (const int count : {2, 1}) {
    auto trace = Trace::begin(false);
    ASSERT_TRUE(trace);
    for (int i = 0; i < count; ++i) ASSERT_TRUE(steps.step());
    ASSERT_TRUE(trace->write(folder_ / "trace.json"));
    EXPECT_EQ(events(folder_ / "trace.json")["forward"], count);
  }
}

TEST_F(TraceTest, AFileThatCannotBeWrittenIsSaid) {
  auto trace = Trace::begin(false);
  ASSERT_TRUE(trace);
  const auto written = trace->write(folder_ / "none/trace.json");
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().code, ErrorCode::kIo);
}

TEST_F(TraceTest, OneThatIsForgottenLeavesRoomForTheNext) {
  { ASSERT_TRUE(Trace::begin(false)); }
  auto next = Trace::begin(false);
  ASSERT_TRUE(next);
  EXPECT_TRUE(next->write(folder_ / "trace.json"));
}

}  // namespace
}  // namespace skerry::diffusion
