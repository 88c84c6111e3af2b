// SPDX-License-Identifier: Apache-2.0
#include "cli/run/initial_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

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
class InitialWeights : public testing::Test {
 protected:
  InitialWeights() {
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

  TempFolder folder;
  pb::ModelSpec model = small_model(10);
  FakeSurroundings around;
  bool uploaded = false;
};

TEST_F(InitialWeights, AreUploadedOnceUnderANameOfTheirBytes) {
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

TEST_F(InitialWeights, OfADryRunAreCheckedAndShownButNotUploaded) {
  ASSERT_EQ(create({"--dry-run"}), kExitOk) << around.told();
  EXPECT_THAT(kinds(), ElementsAre(Body::kRunCreate, Body::kRunCreate));
  EXPECT_THAT(around.printed(), HasSubstr("\"init\": \"" + (folder / "expert_0") + "\""));
  model.set_width(32);
  EXPECT_EQ(create({"--dry-run"}), kExitUsage);
}

TEST_F(InitialWeights, OfAnotherShapeAreRefusedByName) {
  model.set_width(32);
  EXPECT_EQ(create(), kExitUsage);
  EXPECT_THAT(
      around.told(),
      HasSubstr("pos_embed.proj.weight should be F32 [32, 3, 4, 4], found F32 [16, 3, 4, 4]"));
  model = small_model(10);
  model.set_depth(1);
  EXPECT_EQ(create(), kExitUsage);
  EXPECT_THAT(around.told(), testing::ContainsRegex("transformer_blocks.1.* is no part of it"));
  model.set_depth(3);
  EXPECT_EQ(create(), kExitUsage);
  EXPECT_THAT(around.told(), testing::ContainsRegex("transformer_blocks.2.* is missing"));
  EXPECT_FALSE(uploaded);
}

TEST_F(InitialWeights, AFolderWithoutWeightsSaysWhatWasExpected) {
  std::filesystem::remove(folder / "expert_0/diffusion_pytorch_model.safetensors");
  EXPECT_EQ(create(), kExitNotFound);
  EXPECT_THAT(around.told(),
              HasSubstr("expected expert_K/ of a folder that `skerry ensemble fetch` wrote"));
  std::ofstream(folder / "expert_0/diffusion_pytorch_model.safetensors.index.json") << "{}";
  EXPECT_EQ(create(), kExitUsage);
  EXPECT_THAT(around.told(), HasSubstr("spread over several files"));
}

}  // namespace
}  // namespace skerry::cli
