// SPDX-License-Identifier: Apache-2.0
#include "cli/run/initial_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/temp_folder.h"
#include "cli/shell/exit_code.h"
#include "cli/testing/synthetic_checkpoint.h"
#include "cli/testing/testing.h"

namespace skerry::cli {
namespace {

using Body = pb::AdminRequest::BodyCase;
using testing::ElementsAre;
using testing::HasSubstr;

// A coordinator that would train small_model(10), and an exported expert of
// that shape.
class InitialWeightsTest : public testing::Test {
 protected:
  InitialWeightsTest() {
    std::filesystem::create_directories(folder / "expert_0");
    const auto exported =
        export_expert(folder / "expert_0", model, source_of(SyntheticCheckpoint(model, 1)));
    EXPECT_TRUE(exported.has_value());
    std::ofstream(folder / "run.toml")
        << "name = \"birds\"\ndataset = \"shapes\"\n[train]\nsteps = 10\n[model]\ninit = \""
        << (folder / "expert_0") << "\"\n";
    around.coordinator.answers[Body::kRunCreate] = [this](const pb::AdminRequest&) {
      pb::AdminReply reply;
      *reply.mutable_runs()->add_runs()->mutable_model() = model;
      return Result<pb::AdminReply>(reply);
    };
    around.coordinator.answers[Body::kDatasetAdd] = [this](const pb::AdminRequest&) {
      uploaded = true;
      pb::AdminReply reply;
      reply.mutable_ack();
      return Result<pb::AdminReply>(reply);
    };
    around.coordinator.answers[Body::kDatasetShow] =
        [this](const pb::AdminRequest&) -> Result<pb::AdminReply> {
      if (!uploaded) return fail(ErrorCode::kNotFound, "no dataset of that name");
      pb::AdminReply reply;
      reply.mutable_datasets()->add_datasets()->set_state("ready");
      return reply;
    };
  }
  int create(const std::vector<std::string>& more = {}) {
    std::vector<std::string> words{"run", "create", "-f", folder / "run.toml"};
    words.insert(words.end(), more.begin(), more.end());
    around.coordinator.asked.clear();
    return around(words);
  }
  std::vector<Body> kinds() const {
    std::vector<Body> found;
    for (const pb::AdminRequest& asked : around.coordinator.asked)
      found.push_back(asked.body_case());
    return found;
  }

  void edit_config(const std::string& old, const std::string& now) const {
    const std::string path = folder / "expert_0/config.json";
    std::stringstream read;
    read << std::ifstream(path).rdbuf();
    std::string words = read.str();
    ASSERT_NE(words.find(old), std::string::npos) << words;
    std::ofstream(path) << words.replace(words.find(old), old.size(), now);
  }

  TempFolder folder;
  pb::ModelSpec model = small_model(10);
  FakeSurroundings around;
  bool uploaded = false;
};

TEST_F(InitialWeightsTest, AreUploadedOnceUnderANameOfTheirBytes) {
  ASSERT_EQ(create(), kExitOk) << around.told();
  EXPECT_THAT(kinds(), ElementsAre(Body::kRunCreate, Body::kDatasetShow, Body::kDatasetAdd,
                                   Body::kDatasetShow, Body::kRunCreate));
  const auto& asked = around.coordinator.asked;
  EXPECT_TRUE(asked[0].run_create().dry_run());
  EXPECT_EQ(asked[0].run_create().spec().init(), "");
  const pb::DatasetAdd add = asked[2].dataset_add();
  EXPECT_THAT(add.name(), testing::MatchesRegex("weights-[0-9a-f]{16}"));
  ASSERT_EQ(add.files_size(), 1);
  EXPECT_EQ(add.files(0).role(), "weights");
  EXPECT_EQ(add.files(0).object().bytes(),
            std::filesystem::file_size(folder / "expert_0/diffusion_pytorch_model.safetensors"));
  EXPECT_FALSE(asked[4].run_create().dry_run());
  EXPECT_EQ(asked[4].run_create().spec().init(), add.name());
  ASSERT_EQ(create(), kExitOk) << around.told();
  EXPECT_THAT(kinds(), ElementsAre(Body::kRunCreate, Body::kDatasetShow, Body::kRunCreate));
  EXPECT_EQ(around.coordinator.asked[2].run_create().spec().init(), add.name());
}

TEST_F(InitialWeightsTest, OfADryRunAreCheckedAndShownButNotUploaded) {
  ASSERT_EQ(create({"--dry-run"}), kExitOk) << around.told();
  EXPECT_THAT(kinds(), ElementsAre(Body::kRunCreate, Body::kRunCreate));
  EXPECT_THAT(around.printed(), HasSubstr("\"init\": \"" + (folder / "expert_0") + "\""));
  model.set_width(32);
  EXPECT_EQ(create({"--dry-run"}), kExitUsage);
}

TEST_F(InitialWeightsTest, OfAnotherShapeAreRefusedByName) {
  model.set_width(32);
  EXPECT_EQ(create(), kExitUsage);
  EXPECT_THAT(around.told(), HasSubstr("expected width 32, depth 2, heads 2, patch_size 4, 3 "
                                       "channels, found width 16, depth 2, heads 2"));
  model = small_model(10);
  model.set_heads(4);  // the same tensors, another net
  EXPECT_EQ(create(), kExitUsage);
  EXPECT_THAT(around.told(), HasSubstr("expected width 16, depth 2, heads 4"));
  model = small_model(10);
  model.set_classes(11);
  EXPECT_EQ(create(), kExitUsage);
  EXPECT_THAT(around.told(), HasSubstr("embedding_table.weight should be F32 [12, 16], found F32 "
                                       "[11, 16]"));
  edit_config(R"("num_layers": 2)", R"("num_layers": 3)");
  model = small_model(10);
  model.set_depth(3);
  EXPECT_EQ(create(), kExitUsage);
  EXPECT_THAT(around.told(), testing::ContainsRegex("transformer_blocks.2.* is missing"));
  EXPECT_FALSE(uploaded);
}

TEST_F(InitialWeightsTest, AFolderWithoutWeightsSaysWhatWasExpected) {
  std::filesystem::remove(folder / "expert_0/diffusion_pytorch_model.safetensors");
  EXPECT_EQ(create(), kExitNotFound);
  EXPECT_THAT(around.told(),
              HasSubstr("expected expert_K/ of a folder that `skerry ensemble fetch` wrote"));
  std::filesystem::remove(folder / "expert_0/config.json");
  EXPECT_EQ(create(), kExitNotFound);
  EXPECT_THAT(around.told(), HasSubstr("model.init: cannot read"));
}

TEST_F(InitialWeightsTest, GiveTheRunTheirShapeIfItNamesNone) {
  ASSERT_EQ(create(), kExitOk) << around.told();
  for (const std::size_t i : {0U, 4U}) {
    const pb::RunSpec& spec = around.coordinator.asked[i].run_create().spec();
    EXPECT_EQ(spec.preset(), "");
    EXPECT_EQ(spec.width(), 16);
    EXPECT_EQ(spec.depth(), 2);
    EXPECT_EQ(spec.heads(), 2);
    EXPECT_EQ(spec.patch_size(), 4);
  }
  std::ofstream(folder / "run.toml", std::ios::app) << "preset = \"B/4\"\n";
  ASSERT_EQ(create(), kExitOk) << around.told();
  EXPECT_EQ(around.coordinator.asked[0].run_create().spec().preset(), "B/4");
}

TEST_F(InitialWeightsTest, ThatPredictNoiseAreConvertedAndUploadedOnce) {
  std::filesystem::create_directories(folder / "scheduler");
  std::ofstream(folder / "scheduler/scheduler_config.json")
      << R"({"_class_name":"DDIMScheduler","prediction_type":"v_prediction"})";
  EXPECT_EQ(create(), kExitNotFound);
  EXPECT_THAT(around.told(),
              testing::AllOf(HasSubstr("predict noise, so skerry-engine must convert them"),
                             HasSubstr("skerry-engine convert " + (folder / "expert_0"))));
  around.programs["skerry-engine"] = true;
  around.variables["TMPDIR"] = folder / "tmp";
  std::filesystem::create_directories(folder / "tmp");
  std::string output;
  around.run = [&](const std::vector<std::string>& words, const auto&) {
    output = words.at(4);
    const auto exported = export_expert(output, model, source_of(SyntheticCheckpoint(model, 2)));
    EXPECT_TRUE(exported.has_value());
    return 0;
  };
  ASSERT_EQ(create(), kExitOk) << around.told();
  EXPECT_THAT(around.ran.back(), ElementsAre("/bin/skerry-engine", "convert", folder / "expert_0",
                                             "--out", output, "--objective", "auto"));
  EXPECT_TRUE(uploaded);
  EXPECT_TRUE(std::filesystem::is_empty(folder / "tmp"));
  // A file may say that they predict a velocity after all.
  std::ofstream(folder / "run.toml", std::ios::app) << "init_objective = \"flow\"\n";
  around.ran.clear();
  ASSERT_EQ(create(), kExitOk) << around.told();
  EXPECT_TRUE(around.ran.empty());
}

TEST_F(InitialWeightsTest, WhoseConversionFailsLeaveNothingBehind) {
  around.programs["skerry-engine"] = true;
  around.variables["TMPDIR"] = folder / "tmp";
  std::filesystem::create_directories(folder / "tmp");
  std::ofstream(folder / "run.toml", std::ios::app) << "init_objective = \"epsilon\"\n";
  around.run = [](const std::vector<std::string>&, const auto&) { return 2; };
  EXPECT_EQ(create(), kExitUsage);
  EXPECT_TRUE(std::filesystem::is_empty(folder / "tmp"));
  EXPECT_FALSE(uploaded);
}

TEST_F(InitialWeightsTest, ThatReadOtherCaptionsOrMicroConditionsAreRefused) {
  edit_config("DiTTransformer2DModel", "PixArtTransformer2DModel");
  edit_config("{", R"({"caption_channels": 12, "interpolation_scale": 0.5, )"
                   R"("use_additional_conditions": false,)");
  EXPECT_EQ(create(), kExitUsage);
  EXPECT_THAT(around.told(), HasSubstr("read captions, and the run has none"));
  model.set_caption_dim(16);
  EXPECT_EQ(create(), kExitUsage);
  EXPECT_THAT(around.told(),
              HasSubstr("captions of 12 numbers a token, and those of the dataset have 16"));
  edit_config(R"("use_additional_conditions": false)", R"("use_additional_conditions": true)");
  EXPECT_EQ(create(), kExitUsage);
  EXPECT_THAT(around.told(), HasSubstr("micro-conditions"));
}

}  // namespace
}  // namespace skerry::cli
