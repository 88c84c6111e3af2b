// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/text.h"
#include "cli/ensemble/diffusers_folder.h"
#include "cli/ensemble/ensemble_folder.h"
#include "cli/ensemble/model_card.h"
#include "cli/shell/exit_code.h"
#include "cli/shell/output.h"
#include "cli/testing/offered_ensemble.h"
#include "storage/folder_lock.h"

namespace skerry::cli {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

using EnsembleFetch = OfferedEnsemble;

TEST_F(EnsembleFetch, BringsALearnedRouterInTheCheckpointsNames) {
  ensemble.mutable_learned_router();
  answer();
  ASSERT_EQ(around({"ensemble", "fetch", "fashion", "-o", out}), kExitConflict);
  EXPECT_THAT(around.told(), HasSubstr("the router has no checkpoint yet"));
  commit(*ensemble.mutable_learned_router(), 2, 70);
  answer();
  ASSERT_EQ(around({"ensemble", "fetch", "fashion", "-o", out}), kExitOk) << around.told();
  EXPECT_EQ(Json::parse(read("ensemble.json"))["router"], "learned");
  EXPECT_EQ(Json::parse(read("ensemble.json"))["experts"].size(), 2U);
  const auto router = storage::Safetensors::open(out + "/router/learned.safetensors");
  ASSERT_TRUE(router.has_value()) << router.error().message;
  EXPECT_EQ(router->header().tensors.size(), checkpoints[2].ema.size());
  EXPECT_EQ(router->tensor("ema/proj_out_1.weight")->data,
            checkpoints[2].ema.at("proj_out_1.weight").bytes);
  EXPECT_EQ(router->header().metadata.at("format"), "skerry-checkpoint");
  EXPECT_THAT(read("README.md"), HasSubstr("learned.safetensors"));
  EXPECT_THAT(read("SHA256SUMS"), HasSubstr("router/learned.safetensors"));
}

TEST_F(EnsembleFetch, WidensTheAveragesOfALeanTraining) {
  lean = true;
  ensemble.clear_experts();
  checkpoints.clear();
  add_expert(0, 100);
  add_expert(1, 60);
  commit(*ensemble.mutable_learned_router(), 2, 70);
  answer();
  ASSERT_EQ(
      around({"ensemble", "fetch", "fashion", "-o", out, "--training-state", "--raw-weights"}),
      kExitOk)
      << around.told();
  const auto open = [&](const std::string& name) {
    return storage::value_of(storage::Safetensors::open(out + "/" + name));
  };
  const auto weights = open("expert_1/diffusion_pytorch_model.safetensors");
  for (const storage::TensorInfo& tensor : weights.header().tensors) {
    EXPECT_EQ(tensor.dtype, storage::DType::kF32) << tensor.name;
  }
  // A small tensor and one of several blocks, number by number: the upper half
  // of each is the bf16.
  for (const std::string name :
       {"pos_embed.proj.bias",
        "transformer_blocks.0.norm1.emb.timestep_embedder.linear_1.weight"}) {
    const std::string_view wide = weights.tensor(name)->data;
    const std::string& halves = checkpoints[1].ema.at(name).bytes;
    ASSERT_EQ(wide.size(), halves.size()) << name;
    for (std::size_t i = 0; i < wide.size(); i += 4) {
      ASSERT_EQ(wide.substr(i, 2), std::string_view("\0\0", 2)) << name;
      ASSERT_EQ(wide.substr(i + 2, 2), halves.substr(i / 2, 2)) << name;
    }
  }
  const auto raw = open("expert_1/diffusion_pytorch_model.raw.safetensors");
  EXPECT_EQ(raw.tensor("proj_out_1.weight")->data,
            checkpoints[1].ema.at("proj_out_1.weight").bytes);
  // What training goes on from, and what the engine reads, stay as they were.
  EXPECT_EQ(open("expert_1/training_state.safetensors").tensor("m/proj_out_1.weight")->dtype,
            storage::DType::kBF16);
  EXPECT_EQ(open("router/learned.safetensors").tensor("ema/proj_out_1.weight")->dtype,
            storage::DType::kBF16);
}

TEST_F(EnsembleFetch, MakesTheFolderOfTheContract) {
  ASSERT_EQ(around({"ensemble", "fetch", "fashion", "-o", out}), kExitOk) << around.told();
  EXPECT_EQ(around.printed(), out + "\n");
  EXPECT_THAT(around.told(), HasSubstr("1 of 2 experts are behind"));

  const Json index = Json::parse(read("ensemble.json"));
  EXPECT_EQ(index["format"], 1);
  EXPECT_EQ(index["run"], "fashion");
  EXPECT_EQ(index["run_id"], "r-0123456789");
  EXPECT_EQ(index["dataset"], "shapes");
  EXPECT_EQ(index["classes"], Json({"disc", "square"}));
  EXPECT_EQ(index["image_size"], 8);
  EXPECT_EQ(index["channels"], 3);
  EXPECT_EQ(index["model"]["width"], 16);
  EXPECT_EQ(index["router"], "analytic");
  ASSERT_EQ(index["experts"].size(), 2U);
  EXPECT_EQ(index["experts"][0]["laggard"], false);
  EXPECT_EQ(index["experts"][1]["laggard"], true);
  EXPECT_EQ(index["experts"][1]["step"], 60);
  EXPECT_EQ(index["experts"][1]["partition_samples"], 501);
  EXPECT_EQ(index["experts"][1]["manifest"], to_hex(ensemble.experts(1).checkpoint().manifest()));

  for (std::size_t k = 0; k < 2; ++k) {
    const auto weights = storage::Safetensors::open(
        text(out, "/expert_", k, "/diffusion_pytorch_model.safetensors"));
    ASSERT_TRUE(weights.has_value());
    EXPECT_EQ(weights->header().tensors.size(), 44U);
    EXPECT_EQ(weights->tensor("proj_out_1.weight")->data,
              checkpoints[k].ema.at("proj_out_1.weight").bytes);
    EXPECT_TRUE(fs::exists(text(out, "/expert_", k, "/config.json")));
  }
  EXPECT_EQ(read("router/router.safetensors"), "shared statistics");
  EXPECT_EQ(read("router/partition-1.safetensors"), "statistics of 1");

  std::set<std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(out)) {
    if (entry.is_regular_file()) files.insert(fs::relative(entry.path(), out).string());
  }
  EXPECT_EQ(files, (std::set<std::string>{
                       "README.md", "SHA256SUMS", "ensemble.json", "model_index.json",
                       "pipeline.py", "scheduler/scheduler_config.json", "transformer/config.json",
                       "transformer/expert_0/config.json",
                       "transformer/expert_0/diffusion_pytorch_model.safetensors",
                       "transformer/expert_1/config.json",
                       "transformer/expert_1/diffusion_pytorch_model.safetensors",
                       "transformer/router/partition-0.safetensors",
                       "transformer/router/partition-1.safetensors",
                       "transformer/router/router.safetensors", "transformer/skerry_ensemble.py"}));
  EXPECT_FALSE(fs::exists(out + ".partial"));
  EXPECT_EQ(std::system(text("cd '", out, "' && sha256sum --quiet --strict -c SHA256SUMS").c_str()),
            0);
  std::istringstream sums(read("SHA256SUMS"));
  std::size_t lines = 0;
  for (std::string line; std::getline(sums, line); ++lines)
    EXPECT_TRUE(files.contains(line.substr(66))) << line;
  EXPECT_EQ(lines, files.size() - 1);
}

TEST_F(EnsembleFetch, OnlyTheAveragedWeightsMove) {
  ASSERT_EQ(around({"ensemble", "fetch", "fashion", "-o", out}), kExitOk) << around.told();
  std::size_t experts = 0;
  for (const auto& [manifest, chunk] : around.coordinator.fetched) {
    experts += manifest != chunk && manifest.raw() == ensemble.experts(0).checkpoint().manifest();
  }
  EXPECT_EQ(experts, checkpoints[0].ema.size());
}

TEST_F(EnsembleFetch, TheTrainingStateComesWhereItIsAskedForAndIsSummed) {
  ASSERT_EQ(around({"ensemble", "fetch", "fashion", "-o", out, "--training-state"}), kExitOk)
      << around.told();
  const auto state = storage::Safetensors::open(out + "/expert_1/training_state.safetensors");
  ASSERT_TRUE(state.has_value());
  EXPECT_EQ(state->header().tensors.size(), 3 * checkpoints[1].ema.size());
  for (const std::string kind : {"raw/", "m/", "v/"}) {
    const auto tensor = state->tensor(kind + "proj_out_1.weight");
    ASSERT_TRUE(tensor.has_value()) << kind;
    EXPECT_EQ(tensor->data, checkpoints[1].ema.at("proj_out_1.weight").bytes);
  }
  const auto weights =
      storage::Safetensors::open(out + "/expert_1/diffusion_pytorch_model.safetensors");
  ASSERT_TRUE(weights.has_value());
  EXPECT_EQ(weights->header().tensors.size(), 44U);
  EXPECT_THAT(read("SHA256SUMS"), HasSubstr("  transformer/expert_1/training_state.safetensors\n"));
  EXPECT_FALSE(fs::exists(out + "/.fetched-with-training-state"));
}

TEST_F(EnsembleFetch, ExpertsThatWereRemovedAreMissing) {
  add_expert(2, 100);
  add_router("partition", 2, "statistics of 2");
  ensemble.mutable_dataset()->set_partitions(3);
  ensemble.mutable_experts()->DeleteSubrange(1, 1);
  ensemble.mutable_router()->DeleteSubrange(2, 1);
  answer();
  ASSERT_EQ(around({"ensemble", "fetch", "fashion", "-o", out}), kExitOk) << around.told();
  EXPECT_EQ(Json::parse(read("transformer/config.json"))["expert_indices"], Json({0, 2}));
  EXPECT_EQ(Json::parse(read("ensemble.json"))["experts"][1]["index"], 2);
  EXPECT_TRUE(fs::exists(out + "/expert_2/config.json"));
  EXPECT_TRUE(fs::exists(out + "/router/partition-2.safetensors"));
  EXPECT_FALSE(fs::exists(out + "/expert_1"));
  EXPECT_FALSE(fs::exists(out + "/router/partition-1.safetensors"));
}

TEST_F(EnsembleFetch, StatisticsOfAnotherPartitionAreNoEnsemble) {
  ensemble.mutable_router(2)->set_partition(2);
  ensemble.mutable_dataset()->set_partitions(3);
  answer();
  EXPECT_EQ(around({"ensemble", "fetch", "fashion", "-o", out}), kExitError);
  EXPECT_THAT(around.told(), HasSubstr("not a whole ensemble"));
}

TEST_F(EnsembleFetch, EveryWeightIsOnDiskOnce) {
  ASSERT_EQ(around({"ensemble", "fetch", "fashion", "-o", out}), kExitOk) << around.told();
  EXPECT_EQ(fs::read_symlink(out + "/expert_1"), "transformer/expert_1");
  EXPECT_EQ(fs::read_symlink(out + "/router"), "transformer/router");
}

TEST_F(EnsembleFetch, DiffusersFindsThePipelineTheModelAndItsCode) {
  ASSERT_EQ(around({"ensemble", "fetch", "fashion", "-o", out}), kExitOk) << around.told();
  const Json index = Json::parse(read("model_index.json"));
  EXPECT_EQ(index["_class_name"], Json({"pipeline", "SkerryEnsemblePipeline"}));
  EXPECT_EQ(index["transformer"], Json({"skerry_ensemble", "SkerryEnsemble"}));
  EXPECT_EQ(index["id2label"], Json({{"0", "disc"}, {"1", "square"}}));
  const Json config = Json::parse(read("transformer/config.json"));
  EXPECT_EQ(config["expert_indices"], Json({0, 1}));
  EXPECT_EQ(config["num_classes"], 2);
  EXPECT_EQ(config["in_channels"], 3);
  EXPECT_EQ(config["sample_size"], 8);
  EXPECT_EQ(config["auto_map"]["AutoModel"], "skerry_ensemble.SkerryEnsemble");
  EXPECT_THAT(read("pipeline.py"), HasSubstr("class SkerryEnsemblePipeline(DiffusionPipeline)"));
  EXPECT_THAT(read("transformer/skerry_ensemble.py"), HasSubstr("class SkerryEnsemble(ModelMixin"));
}

TEST_F(EnsembleFetch, LatentsAreDrawnByTheStockPipeline) {
  ensemble.mutable_run()->mutable_model()->set_channels(4);
  const std::string made = folder / "latents";
  EXPECT_FALSE(draws_pixels(made, ensemble.run().model()));
  fs::create_directories(made + "/transformer");
  ASSERT_TRUE(write_diffusers_files(made, ensemble).has_value());
  std::ifstream file(made + "/model_index.json");
  EXPECT_EQ(Json::parse(file)["_class_name"], "DiTPipeline");
  EXPECT_THAT(model_card(ensemble, made), HasSubstr("DiTPipeline.from_pretrained(\".\", vae=vae"));
}

TEST_F(EnsembleFetch, LatentsOfThreeChannelsAreNoPixels) {
  const std::string bytes(1, '\0');
  const std::vector<storage::TensorView> any{{"any", storage::DType::kU8, {1}, bytes}};
  ensemble.clear_router();
  add_router("router", -1,
             storage::value_of(storage::encode_safetensors(
                 any, {{"latent_scale", "0.25"}, {"latent_shift", "-1"}})));
  add_router("partition", 0, "statistics of 0");
  add_router("partition", 1, "statistics of 1");
  answer();
  ASSERT_EQ(around({"ensemble", "fetch", "fashion", "-o", out}), kExitOk) << around.told();
  EXPECT_EQ(Json::parse(read("model_index.json"))["_class_name"], "DiTPipeline");
  EXPECT_THAT(read("README.md"), HasSubstr("vae.register_to_config(scaling_factor=0.25)"));
  EXPECT_THAT(read("README.md"), HasSubstr("does not add the shift of -1.0 again"));
}

TEST_F(EnsembleFetch, TheModelCardSaysWhatIsKnownAndMarksWhatIsNot) {
  ensemble.mutable_dataset()->set_name("shapes|<b>");
  ensemble.mutable_dataset()->set_samples(1001);
  pb::ExpertInfo& trained = *ensemble.mutable_run()->add_experts();
  trained.set_index(1);
  trained.set_loss(0.12345678);
  trained.set_committed_unix_ms(1);
  answer();
  ASSERT_EQ(around({"ensemble", "fetch", "fashion", "-o", out}), kExitOk) << around.told();
  const std::string card = read("README.md");
  EXPECT_TRUE(card.starts_with("---\nlibrary_name: diffusers\n"));
  EXPECT_THAT(
      card,
      HasSubstr("- Name: shapes\\|\\<b\\>\n- Images: 1001, 3 × 8 × 8\n- Classes: disc, square\n"));
  EXPECT_THAT(card, HasSubstr("| 0 | 500 | 100 | 100 | – |\n| 1 | 501 | 60 | 100 | 0.1235 |\n"));
  EXPECT_THAT(card, HasSubstr("license: unknown\n"));
  EXPECT_THAT(card, HasSubstr("- Licence of the images: **TO BE FILLED IN**"));
  EXPECT_THAT(card, HasSubstr("pipe([\"disc\"] * 4"));
}

TEST_F(EnsembleFetch, RawWeightsComeAsAVariant) {
  ASSERT_EQ(around({"ensemble", "fetch", "fashion", "-o", out, "--raw-weights"}), kExitOk)
      << around.told();
  const auto raw =
      storage::Safetensors::open(out + "/expert_1/diffusion_pytorch_model.raw.safetensors");
  ASSERT_TRUE(raw.has_value());
  EXPECT_EQ(raw->header().tensors.size(), 44U);
  EXPECT_EQ(raw->tensor("proj_out_1.weight")->data,
            checkpoints[1].ema.at("proj_out_1.weight").bytes);
  EXPECT_FALSE(fs::exists(out + "/expert_1/training_state.safetensors"));
}

TEST_F(EnsembleFetch, GoesOnWhereItWasInterrupted) {
  around.coordinator.fetches_before_loss = 30;
  EXPECT_EQ(around({"ensemble", "fetch", "fashion", "-o", out}), kExitUnreachable);
  EXPECT_FALSE(fs::exists(out));
  EXPECT_TRUE(fs::exists(out + ".partial"));

  const auto before = around.coordinator.fetched;
  around.coordinator.fetches_before_loss = SIZE_MAX;
  ASSERT_EQ(around({"ensemble", "fetch", "fashion", "-o", out}), kExitOk) << around.told();
  for (std::size_t i = before.size(); i < around.coordinator.fetched.size(); ++i) {
    const auto& chunk = around.coordinator.fetched[i];
    if (chunk.first == chunk.second) continue;  // manifests are asked for again
    EXPECT_EQ(std::count(before.begin(), before.end(), chunk), 0);
  }
  const auto weights =
      storage::Safetensors::open(out + "/expert_1/diffusion_pytorch_model.safetensors");
  ASSERT_TRUE(weights.has_value());
  EXPECT_EQ(weights->tensor("proj_out_2.bias")->data,
            checkpoints[1].ema.at("proj_out_2.bias").bytes);
}

TEST_F(EnsembleFetch, AnExistingFolderIsAConflictAndStays) {
  fs::create_directory(out);
  std::ofstream(out + "/mine") << "kept";
  EXPECT_EQ(around({"ensemble", "fetch", "fashion", "-o", out}), kExitConflict);
  EXPECT_THAT(around.told(), HasSubstr("exists already"));
  EXPECT_EQ(read("mine"), "kept");
  EXPECT_TRUE(around.coordinator.fetched.empty());
}

TEST_F(EnsembleFetch, WhileAnotherWritesThereIsAConflictAndLeavesItAlone) {
  const auto held = storage::lock_folder(out + ".partial", "");
  ASSERT_TRUE(held.has_value());
  EXPECT_EQ(around({"ensemble", "fetch", "fashion", "-o", out}), kExitConflict);
  EXPECT_THAT(around.told(), HasSubstr("another fetch is writing to"));
  EXPECT_TRUE(around.coordinator.fetched.empty());
}

TEST_F(EnsembleFetch, AnExpertWithoutACheckpointIsNamed) {
  ensemble.mutable_experts(1)->clear_checkpoint();
  answer();
  EXPECT_EQ(around({"ensemble", "fetch", "fashion", "-o", out}), kExitConflict);
  EXPECT_THAT(around.told(), HasSubstr("expert 1 has no checkpoint yet"));
  EXPECT_FALSE(fs::exists(out + ".partial"));
}

TEST_F(EnsembleFetch, AnAnswerThatIsNotAWholeEnsembleIsRefused) {
  ensemble.mutable_experts()->RemoveLast();
  answer();
  EXPECT_EQ(around({"ensemble", "fetch", "fashion", "-o", out}), kExitError);
  EXPECT_FALSE(fs::exists(out));
}

TEST_F(EnsembleFetch, ACheckpointThatWentMeanwhileIsAskedForAnew) {
  const pb::EnsembleReply newer = ensemble;
  ensemble.mutable_experts(0)->mutable_checkpoint()->set_manifest(blake2b("gone").raw());
  pb::AdminReply first, second;
  *first.mutable_ensemble() = ensemble;
  *second.mutable_ensemble() = newer;
  int asked = 0;
  around.coordinator.answers[pb::AdminRequest::kEnsemble] =
      [&](const pb::AdminRequest&) -> Result<pb::AdminReply> {
    return ++asked == 1 ? first : second;
  };
  ASSERT_EQ(around({"ensemble", "fetch", "fashion", "-o", out}), kExitOk) << around.told();
  EXPECT_EQ(asked, 2);
  EXPECT_EQ(Json::parse(read("ensemble.json"))["experts"][0]["manifest"],
            to_hex(newer.experts(0).checkpoint().manifest()));
}

}  // namespace
}  // namespace skerry::cli
