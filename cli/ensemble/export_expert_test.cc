// SPDX-License-Identifier: Apache-2.0
#include "cli/ensemble/export_expert.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "base/temp_folder.h"
#include "base/text.h"
#include "cli/shell/output.h"
#include "cli/testing/synthetic_checkpoint.h"

namespace skerry::cli {
namespace {

using testing::HasSubstr;

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream out;
  out << file.rdbuf();
  return out.str();
}

// The list of names in diffusers' DiTTransformer2DModel, written out for two
// blocks.
std::set<std::string> names_of_diffusers() {
  std::set<std::string> names = {"pos_embed.proj.weight", "pos_embed.proj.bias",
                                 "proj_out_1.weight",     "proj_out_1.bias",
                                 "proj_out_2.weight",     "proj_out_2.bias"};
  for (const std::string block : {"transformer_blocks.0.", "transformer_blocks.1."}) {
    names.insert(block + "norm1.emb.class_embedder.embedding_table.weight");
    for (const std::string layer :
         {"norm1.emb.timestep_embedder.linear_1", "norm1.emb.timestep_embedder.linear_2",
          "norm1.linear", "attn1.to_q", "attn1.to_k", "attn1.to_v", "attn1.to_out.0",
          "ff.net.0.proj", "ff.net.2"}) {
      names.insert(block + layer + ".weight");
      names.insert(block + layer + ".bias");
    }
  }
  return names;
}

TEST(ExportExpert, NamesShapesAndBytesAreThoseOfDiffusers) {
  const TempFolder folder;
  const pb::ModelSpec model = small_model(10);
  const SyntheticCheckpoint checkpoint(model, 1);
  const auto done = export_expert(folder.path().string(), model, source_of(checkpoint));
  ASSERT_TRUE(done.has_value()) << done.error().message;

  const auto file = storage::Safetensors::open(folder / "diffusion_pytorch_model.safetensors");
  ASSERT_TRUE(file.has_value());
  EXPECT_EQ(file->header().metadata.at("format"), "pt");
  std::set<std::string> names;
  for (const auto& tensor : file->header().tensors) {
    names.insert(tensor.name);
    EXPECT_EQ(tensor.dtype, storage::DType::kF32);
  }
  EXPECT_EQ(names, names_of_diffusers());
  EXPECT_EQ(names.size(), 19U * model.depth() + 6);

  using Shape = std::vector<std::uint64_t>;
  const auto shape = [&](const std::string& name) { return file->tensor(name)->shape; };
  EXPECT_EQ(shape("pos_embed.proj.weight"), (Shape{16, 3, 4, 4}));
  EXPECT_EQ(shape("transformer_blocks.1.norm1.emb.timestep_embedder.linear_1.weight"),
            (Shape{16, 256}));
  EXPECT_EQ(shape("transformer_blocks.1.norm1.emb.class_embedder.embedding_table.weight"),
            (Shape{11, 16}));
  EXPECT_EQ(shape("transformer_blocks.0.norm1.linear.weight"), (Shape{96, 16}));
  EXPECT_EQ(shape("transformer_blocks.0.ff.net.0.proj.weight"), (Shape{64, 16}));
  EXPECT_EQ(shape("transformer_blocks.0.ff.net.2.weight"), (Shape{16, 64}));
  EXPECT_EQ(shape("proj_out_1.weight"), (Shape{32, 16}));
  EXPECT_EQ(shape("proj_out_2.weight"), (Shape{48, 16}));
  EXPECT_EQ(shape("proj_out_2.bias"), (Shape{48}));

  // Every tensor is its own, and the embedders of every block are block 0's.
  for (const auto& tensor : file->header().tensors) {
    std::string from = tensor.name;
    if (from.find("norm1.emb.") != std::string::npos)
      from.replace(from.find("blocks.") + 7, 1, "0");
    EXPECT_EQ(file->view(tensor).data, checkpoint.ema.at(from).bytes) << tensor.name;
  }
}

TEST(ExportExpert, TheConfigHoldsEveryKeyThatDiffusersReads) {
  const Json config = Json::parse(diffusers_config(small_model(10)));
  EXPECT_EQ(config.size(), 18U);  // any other would print a warning
  EXPECT_EQ(config["_class_name"], "DiTTransformer2DModel");
  EXPECT_EQ(config["num_attention_heads"], 2);
  EXPECT_EQ(config["attention_head_dim"], 8);
  EXPECT_EQ(config["in_channels"], 3);
  EXPECT_EQ(config["out_channels"], 3);
  EXPECT_EQ(config["num_layers"], 2);
  EXPECT_EQ(config["sample_size"], 8);
  EXPECT_EQ(config["patch_size"], 4);
  EXPECT_EQ(config["num_embeds_ada_norm"], 10);
  EXPECT_EQ(config["norm_eps"], 1e-6);  // diffusers' default is another
  EXPECT_EQ(config["norm_type"], "ada_norm_zero");
  EXPECT_EQ(config["activation_fn"], "gelu-approximate");
  EXPECT_EQ(config["norm_elementwise_affine"], false);
  EXPECT_EQ(config["attention_bias"], true);
}

TEST(ExportExpert, APixartKeepsTheNamesThatItTrainsWith) {
  pb::ModelSpec model = small_model(0);
  model.set_caption_dim(24);
  const std::vector<ExportedTensor> tensors = exported_tensors(model);
  EXPECT_EQ(tensors.size(), 21U * model.depth() + 15);
  std::map<std::string, std::vector<std::uint64_t>> shapes;
  for (const ExportedTensor& tensor : tensors) {
    EXPECT_EQ(tensor.name, tensor.from);
    shapes[tensor.name] = tensor.shape;
  }
  using Shape = std::vector<std::uint64_t>;
  EXPECT_EQ(shapes["caption_projection.linear_1.weight"], (Shape{16, 24}));
  EXPECT_EQ(shapes["transformer_blocks.1.scale_shift_table"], (Shape{6, 16}));
  EXPECT_EQ(shapes["transformer_blocks.1.attn2.to_k.weight"], (Shape{16, 16}));
  const Json config = Json::parse(diffusers_config(model));
  EXPECT_EQ(config["_class_name"], "PixArtTransformer2DModel");
  EXPECT_EQ(config["norm_type"], "ada_norm_single");
  EXPECT_EQ(config["caption_channels"], 24);
  EXPECT_EQ(config["cross_attention_dim"], 16);
  EXPECT_EQ(config["interpolation_scale"], 1.0);
  EXPECT_EQ(config["use_additional_conditions"], false);
  EXPECT_EQ(config["out_channels"], 3);
}

TEST(ExportExpert, UnlabelledDataHasOneUnusedClass) {
  const TempFolder folder;
  const pb::ModelSpec model = small_model(0);
  const SyntheticCheckpoint checkpoint(model, 1);
  ASSERT_TRUE(export_expert(folder.path().string(), model, source_of(checkpoint)).has_value());
  EXPECT_EQ(Json::parse(read_file(folder / "config.json"))["num_embeds_ada_norm"], 1);
  const auto file = storage::Safetensors::open(folder / "diffusion_pytorch_model.safetensors");
  ASSERT_TRUE(file.has_value());
  EXPECT_EQ(
      file->tensor("transformer_blocks.0.norm1.emb.class_embedder.embedding_table.weight")->shape,
      (std::vector<std::uint64_t>{2, 16}));
}

TEST(ExportExpert, WhatIsLargerThanAShardIsSplitAndIndexed) {
  const TempFolder folder;
  const pb::ModelSpec model = small_model(10);
  const SyntheticCheckpoint checkpoint(model, 1);
  const auto done = export_expert(folder.path().string(), model, source_of(checkpoint),
                                  {.variant = "raw", .shard_bytes = 30'000});
  ASSERT_TRUE(done.has_value()) << done.error().message;
  const Json index =
      Json::parse(read_file(folder / "diffusion_pytorch_model.safetensors.index.raw.json"));
  std::map<std::string, std::uint64_t> bytes_of_file;
  std::uint64_t total = 0;
  for (const ExportedTensor& tensor : exported_tensors(model)) {
    const std::string name = index["weight_map"][tensor.name];
    const auto file = storage::Safetensors::open(folder / name);
    ASSERT_TRUE(file.has_value()) << name;
    const auto view = file->tensor(tensor.name);
    ASSERT_TRUE(view.has_value()) << tensor.name << " in " << name;
    EXPECT_EQ(view->data, checkpoint.ema.at(tensor.from).bytes);
    bytes_of_file[name] += view->data.size();
    total += view->data.size();
  }
  EXPECT_EQ(index["metadata"]["total_size"], total);
  EXPECT_EQ(index["weight_map"].size(), 44U);
  ASSERT_GT(bytes_of_file.size(), 2U);
  for (const auto& [name, bytes] : bytes_of_file) EXPECT_LE(bytes, 30'000U) << name;
  EXPECT_EQ(bytes_of_file.begin()->first, text("diffusion_pytorch_model.raw-00001-of-0000",
                                               bytes_of_file.size(), ".safetensors"));
  EXPECT_FALSE(std::filesystem::exists(folder / "diffusion_pytorch_model.safetensors"));
}

void expect_refusal(const SyntheticCheckpoint& checkpoint, const std::string& words) {
  const TempFolder folder;
  const auto done = export_expert(folder.path().string(), small_model(10), source_of(checkpoint));
  ASSERT_FALSE(done.has_value());
  EXPECT_EQ(done.error().code, ErrorCode::kCorrupt);
  EXPECT_THAT(done.error().message, HasSubstr(words));
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(ExportExpert, ACheckpointOfAnotherModelIsRefusedAndLeavesNothing) {
  SyntheticCheckpoint missing(small_model(10), 1);
  missing.ema.erase("proj_out_1.bias");
  expect_refusal(missing, "proj_out_1.bias");

  SyntheticCheckpoint more(small_model(10), 1);
  more.ema["other"] = more.ema["proj_out_1.bias"];
  expect_refusal(more, "other");

  SyntheticCheckpoint shape(small_model(10), 1);
  shape.ema["proj_out_1.bias"].shape = {31};
  expect_refusal(shape, "should be F32 [32], found F32 [31]");

  SyntheticCheckpoint truncated(small_model(10), 1);
  truncated.ema["proj_out_1.bias"].bytes.resize(40);
  expect_refusal(truncated, "should have 128 bytes, found 40");
}

}  // namespace
}  // namespace skerry::cli
