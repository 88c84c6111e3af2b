// SPDX-License-Identifier: Apache-2.0
#include "cli/run/run_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "cli/run/run_keys.h"
#include "protocol/validate.h"

namespace skerry::cli {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

const std::string kLeast = "name = \"fashion\"\ndataset = \"fashion-mnist\"\n";
const std::string kModel = "[model]\npreset = \"S/2\"\n";
const std::string kTrain = "[train]\nsteps = 2000\n";

Result<pb::RunSpec> parse(const std::string& toml) {
  ASSIGN_OR_RETURN(RunFile file, parse_run_file(toml, "run.toml"));
  return std::move(file.spec);
}

TEST(RunFile, TheExampleOfTheContract) {
  const auto spec = parse(R"(
name = "fashion"
dataset = "fashion-mnist"
seed = 7
[model]
preset = "S/2"
init = "birds/expert_3"
[train]
steps = 2000
batch_size = 32
learning_rate = 3e-4
schedule = "cosine"
warmup_steps = 50
clip = 0.5
ema = 0.995
label_dropout = 0.2
precision = "bf16"
kernels = "reference"
micro_batch = 16
gradient_checkpointing = true
state = "lean"
t_distribution = "lognormal"
flip = true
weight_norm = true
threads = 2
[checkpoint]
round_seconds = 30
offline_rounds = 4
copies = 3
keep = 3
[schedule]
turn_rounds = 6
cards = "same"
cards_per_expert = 2
[budget]
dollars = 50
dollars_per_hour = 2.5
max_node_price = 0.5
[router]
kind = "analytic"
)");
  ASSERT_TRUE(spec.has_value()) << spec.error().message;
  EXPECT_EQ(spec->name(), "fashion");
  EXPECT_EQ(spec->dataset(), "fashion-mnist");
  EXPECT_EQ(spec->preset(), "S/2");
  EXPECT_EQ(spec->width(), 0U);
  EXPECT_EQ(spec->train().seed(), 7U);
  EXPECT_EQ(spec->train().steps(), 2000U);
  EXPECT_EQ(spec->train().batch_size(), 32U);
  EXPECT_EQ(spec->train().learning_rate(), 3e-4);
  EXPECT_EQ(spec->train().schedule(), pb::SCHEDULE_COSINE);
  EXPECT_EQ(spec->train().warmup_steps(), 50U);
  EXPECT_EQ(spec->train().clip(), 0.5);
  EXPECT_EQ(spec->init(), "birds/expert_3");
  EXPECT_EQ(spec->train().ema(), 0.995);
  EXPECT_EQ(spec->train().label_dropout(), 0.2);
  EXPECT_EQ(spec->train().precision(), "bf16");
  EXPECT_EQ(spec->train().kernels(), pb::KERNELS_REFERENCE);
  EXPECT_EQ(spec->train().t_distribution(), pb::TIME_DISTRIBUTION_LOGNORMAL);
  EXPECT_TRUE(spec->train().flip());
  EXPECT_TRUE(spec->train().weight_norm());
  EXPECT_EQ(spec->train().micro_batch(), 16U);
  EXPECT_TRUE(spec->train().gradient_checkpointing());
  EXPECT_EQ(spec->train().state(), pb::STATE_FORM_LEAN);
  EXPECT_EQ(spec->train().threads(), 2U);
  EXPECT_EQ(spec->round_seconds(), 30);
  EXPECT_EQ(spec->round_steps(), 0U);
  EXPECT_EQ(spec->offline_rounds(), 4U);
  EXPECT_EQ(spec->copies(), 3U);
  EXPECT_EQ(spec->keep(), 3U);
  EXPECT_EQ(spec->turn_rounds(), 6U);
  EXPECT_EQ(spec->cards(), "same");
  EXPECT_EQ(spec->cards_per_expert(), 2U);
  EXPECT_EQ(spec->budget_dollars(), 50);
  EXPECT_EQ(spec->budget_dollars_per_hour(), 2.5);
  EXPECT_EQ(spec->max_node_price(), 0.5);
  EXPECT_EQ(spec->router_kind(), "analytic");
}

TEST(RunFile, DefaultsAreThoseOfTheExample) {
  const auto least = parse(kLeast + kTrain);
  ASSERT_TRUE(least.has_value()) << least.error().message;
  auto example = parse(example_run_file());
  ASSERT_TRUE(example.has_value()) << example.error().message << "\n" << example_run_file();
  EXPECT_EQ(example->train().kernels(), pb::KERNELS_FAST);
  EXPECT_EQ(least->train().kernels(), pb::KERNELS_REFERENCE)
      << "older files' runs compute what they did";
  example->mutable_train()->set_kernels(least->train().kernels());
  EXPECT_EQ(least->SerializeAsString(), example->SerializeAsString());
  EXPECT_EQ(least->train().batch_size(), 64U);
  EXPECT_EQ(least->train().micro_batch(), 0U);
  EXPECT_FALSE(least->train().gradient_checkpointing());
  EXPECT_EQ(least->train().state(), pb::STATE_FORM_FULL);
  EXPECT_EQ(least->round_seconds(), 60);
  EXPECT_EQ(least->turn_rounds(), 0U);
  EXPECT_EQ(least->turn_seconds(), 1200);
  EXPECT_EQ(least->cards(), "any");
  EXPECT_FALSE(least->has_cards_per_expert()) << "as in a run from before this key";
}

TEST(RunFile, WhatItAcceptsTheCoordinatorAccepts) {
  const auto spec = parse(kLeast + kModel + kTrain);
  ASSERT_TRUE(spec.has_value());
  const auto checked = protocol::validate_run_spec(*spec);
  EXPECT_TRUE(checked.has_value()) << checked.error().message;
  const auto shaped =
      parse(kLeast + "[model]\nwidth=128\ndepth=4\nheads=4\npatch_size=4\n" + kTrain);
  ASSERT_TRUE(shaped.has_value()) << shaped.error().message;
  EXPECT_EQ(shaped->preset(), "");
  EXPECT_TRUE(protocol::validate_run_spec(*shaped).has_value());
}

TEST(RunFile, EveryKeyIsInTheExampleAndEveryRangeIsTaken) {
  const std::string example = example_run_file();
  for (const RunKey& key : run_keys())
    EXPECT_THAT(example, HasSubstr(std::string(key.name) + " = "));
}

struct Bad {
  std::string toml;
  std::string where;  // after "run.toml"
  std::string words;
};

class BadRunFile : public testing::TestWithParam<Bad> {};

TEST_P(BadRunFile, NamesThePlaceAndWhatWasExpected) {
  const auto spec = parse(GetParam().toml);
  ASSERT_FALSE(spec.has_value());
  EXPECT_EQ(spec.error().code, ErrorCode::kInvalid);
  EXPECT_THAT(spec.error().message, StartsWith("run.toml" + GetParam().where));
  EXPECT_THAT(spec.error().message, HasSubstr(GetParam().words));
}

INSTANTIATE_TEST_SUITE_P(
    Table, BadRunFile,
    testing::Values(
        Bad{"name = ", ":1:", "not TOML"}, Bad{"name = \"a\"\nname = \"b\"\n", ":2:", "not TOML"},
        Bad{"", ": ", "name is missing"},
        Bad{"name = \"a\"\n" + kModel + kTrain, ": ", "dataset is missing"},
        Bad{kLeast + kModel, ": ", "steps is missing in [train]"},
        Bad{kLeast + "[model]\ndepth=4\n" + kTrain, ": ", "model.width is missing"},
        Bad{kLeast + "[model]\nwidth=128\ndepth=4\nheads=4\n" + kTrain, ": ",
            "model.patch_size is missing"},
        Bad{kLeast + "[model]\npreset=\"S/2\"\nwidth=128\n" + kTrain, ":5:7",
            "cannot stand beside"},
        Bad{kLeast + "[model]\nwidth=130\ndepth=4\nheads=4\npatch_size=4\n" + kTrain, ":4:7",
            "multiple of 4"},
        Bad{kLeast + "colour = 1\n" + kModel + kTrain, ":3:1", "unknown key colour"},
        Bad{kLeast + "[model]\npresett = \"S/2\"\n" + kTrain, ":4:1", "did you mean preset?"},
        Bad{kLeast + "[training]\nsteps = 1\n", ":3:", "did you mean train?"},
        Bad{kLeast + "steps = 10\n", ":3:1", "it belongs in [train]"},
        Bad{kLeast + "train = 5\n", ":3:9", "'train' is a section"},
        Bad{kLeast + "[model]\npreset = \"S/3\"\n" + kTrain, ":4:10", "expected S, B, L or XL"},
        Bad{kLeast + "[model]\ninit = \"\"\n" + kTrain, ":4:8", "model.init: expected a folder"},
        Bad{kLeast + "[model]\npreset = 2\n" + kTrain, ":4:10", "found integer 2"},
        Bad{kLeast + kModel + "[train]\nsteps = 0\n", ":6:9",
            "from 1 to 1000000000, found integer 0"},
        Bad{kLeast + kModel + "[train]\nsteps = 1.5\n", ":6:9", "expected a whole number"},
        Bad{kLeast + kModel + "[train]\nsteps = \"many\"\n", ":6:9", "found string"},
        Bad{kLeast + kModel + kTrain + "learning_rate = 2\n", ":7:17", "a number from 1e-9 to 1"},
        Bad{kLeast + kModel + kTrain + "learning_rate = nan\n", ":7:17", "a number from 1e-9 to 1"},
        Bad{kLeast + kModel + kTrain + "schedule = \"step\"\n", ":7:12",
            "\"constant\", \"linear\", \"cosine\" or \"cyclic\""},
        Bad{kLeast + kModel + kTrain + "schedule = \"cyclic\"\n", ":7:12",
            "needs train.cycle_steps"},
        Bad{kLeast + kModel + kTrain + "cycle_steps = 5\n", ":7:15",
            "of schedule = \"cyclic\" only"},
        Bad{kLeast + kModel + kTrain + "micro_batch = -1\n", ":7:15",
            "a whole number from 0 to 65536"},
        Bad{kLeast + kModel + kTrain + "gradient_checkpointing = 1\n", ":7:26",
            "expected true or false"},
        Bad{kLeast + kModel + kTrain + "state = \"thin\"\n", ":7:9",
            "expected \"full\" or \"lean\""},
        Bad{kLeast + kModel + kTrain + "flip = 1\n", ":7:8",
            "expected true or false, found integer 1"},
        Bad{kLeast + kModel + kTrain + "kernels = \"slow\"\n", ":7:11",
            "\"fast\" or \"reference\""},
        Bad{kLeast + kModel + kTrain + "t_distribution = \"normal\"\n", ":7:18",
            "\"uniform\" or \"lognormal\""},
        Bad{kLeast + kModel + kTrain + "warmup_steps = 3000\n", ":7:16",
            "at most train.steps = 2000"},
        Bad{kLeast + kModel + kTrain + "precision = \"fp16\"\n", ":7:13",
            "expected \"fp32\" or \"bf16\""},
        Bad{kLeast + kModel + kTrain + "threads = []\n", ":7:11", "found an array"},
        Bad{kLeast + kModel + kTrain + "[checkpoint]\ncopies = 17\n", ":8:10",
            "a whole number from 1 to 16"},
        Bad{kLeast + kModel + kTrain + "[checkpoint]\nround_seconds=5\nround_steps=5\n", ":9:13",
            "remove one of them"},
        Bad{kLeast + kModel + kTrain + "[budget]\ndollars = -1\n", ":8:11",
            "budget.dollars: expected a number from 0 to 1e9, found integer -1"},
        Bad{kLeast + kModel + kTrain + "[budget]\nmax_node_price = nan\n", ":8:18",
            "expected a number from 0 to 10000"},
        Bad{kLeast + kModel + kTrain + "[router]\nkind = \"best\"\n", ":8:8",
            "expected \"analytic\" or \"learned\""},
        Bad{"name = \"A b\"\ndataset = \"d\"\n" + kModel + kTrain, ":1:8", "a name of at most 63"},
        Bad{kLeast + "seed = -1\n" + kModel + kTrain, ":3:8", "a whole number from 0"}));

TEST(RunFile, AMissingFileIsNotFound) {
  const auto spec = read_run_file("/nonexistent/run.toml");
  ASSERT_FALSE(spec.has_value());
  EXPECT_EQ(spec.error().code, ErrorCode::kNotFound);
}

TEST(RunFile, InitSaysWhatItsWeightsPredictAndMayGiveTheShape) {
  const auto none = parse_run_file(kLeast + kTrain + "[model]\ninit = \"a\"\n", "run.toml");
  ASSERT_TRUE(none) << none.error().message;
  EXPECT_EQ(none->init_objective, "auto");
  EXPECT_FALSE(none->names_shape);
  const auto all = parse_run_file(
      kLeast + kModel + "init = \"a\"\ninit_objective = \"epsilon\"\n" + kTrain, "run.toml");
  ASSERT_TRUE(all) << all.error().message;
  EXPECT_EQ(all->init_objective, "epsilon");
  EXPECT_TRUE(all->names_shape);
  EXPECT_THAT(parse(kLeast + kModel + "init_objective = \"v\"\n" + kTrain).error().message,
              HasSubstr("expected \"auto\", \"flow\" or \"epsilon\", found string 'v'"));
  EXPECT_THAT(parse(kLeast + kModel + "init_objective = \"flow\"\n" + kTrain).error().message,
              HasSubstr("model.init, which is missing"));
}

}  // namespace
}  // namespace skerry::cli
