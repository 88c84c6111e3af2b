// SPDX-License-Identifier: Apache-2.0
#include "diffusion/model/pretrained.h"

#include <torch/torch.h>

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "diffusion/model/dit.h"
#include "diffusion/testing/testing.h"
#include "diffusion/train/train.h"
#include "diffusion/train/train_batch.h"
#include "diffusion/train/train_state.h"

namespace skerry::diffusion {
namespace {

using namespace testing;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

// A folder as diffusers saves it, of random weights.
class PretrainedTest : public ::testing::Test {
 protected:
  struct Form {
    at::ScalarType type = at::kFloat;
    bool sigma = false;   // the head has twice the channels
    bool shards = false;  // two files and their index
  };
  using Weights = std::vector<std::pair<std::string, at::Tensor>>;

  PretrainedTest() { fs::create_directories(folder_ / "public/scheduler"); }
  std::string transformer() const { return folder_ / "public/transformer"; }
  std::string converted() const { return folder_ / "converted"; }

  static Weights weights_of(const ModelSpec& model, const std::vector<at::Tensor>& trained,
                            const Form& form) {
    Weights weights;
    const auto shapes = parameter_shapes(model);
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      const std::string& name = shapes[i].name;
      at::Tensor tensor = trained[i];
      const bool head = name.starts_with("proj_out.") || name.starts_with("proj_out_2.");
      if (head && form.sigma) {  // of each place first the channels, then their variances
        auto rows = tensor.view({-1, model.channels, tensor.numel() / tensor.size(0)});
        auto shape = tensor.sizes().vec();
        shape[0] *= 2;
        tensor = at::cat({rows, at::full_like(rows, 99)}, 1).reshape(shape);
      }
      weights.emplace_back(name, tensor);
      const std::size_t at = name.find("blocks.0.norm1.emb.");
      if (at == std::string::npos) continue;
      for (std::uint32_t block = 1; block < model.depth; ++block) {
        std::string copy = name;
        weights.emplace_back(copy.replace(at + 7, 1, text(block)), tensor);
      }
    }
    for (auto& [name, tensor] : weights) tensor = tensor.to(form.type).contiguous();
    return weights;
  }
  void write_file(const std::string& name, const Weights& weights, const Form& form) {
    std::vector<storage::TensorView> views;
    for (const auto& [key, tensor] : weights) {
      const auto type = form.type == at::kHalf       ? storage::DType::kF16
                        : form.type == at::kBFloat16 ? storage::DType::kBF16
                                                     : storage::DType::kF32;
      views.push_back({key,
                       type,
                       {tensor.sizes().begin(), tensor.sizes().end()},
                       {static_cast<const char*>(tensor.data_ptr()), tensor.nbytes()}});
    }
    ASSERT_TRUE(storage::write_safetensors(transformer() + "/" + name, views, {}));
  }
  void write(const Weights& weights) { write(weights, Form()); }
  void write(const Weights& weights, const Form& form) {
    fs::remove_all(transformer());
    fs::create_directories(transformer());
    if (!form.shards) {
      write_file("diffusion_pytorch_model.safetensors", weights, form);
      return;
    }
    const auto half = static_cast<std::ptrdiff_t>(weights.size() / 2);
    write_file("a.safetensors", {weights.begin(), weights.begin() + half}, form);
    write_file("b.safetensors", {weights.begin() + half, weights.end()}, form);
    std::ofstream index(transformer() + "/diffusion_pytorch_model.safetensors.index.json");
    index << R"({"weight_map":{)";
    for (std::size_t i = 0; i < weights.size(); ++i) {
      index << (i > 0 ? "," : "") << '"' << weights[i].first << R"(":")"
            << (static_cast<std::ptrdiff_t>(i) < half ? "a" : "b") << R"(.safetensors")";
    }
    index << "}}";
  }
  void write_config(const ModelSpec& model, const std::string& name, const std::string& more = "") {
    std::ofstream(transformer() + "/config.json")
        << R"({"_class_name":")" << name << R"(","sample_size":)" << model.image_size
        << R"(,"in_channels":)" << model.channels << R"(,"patch_size":)" << model.patch_size
        << R"(,"num_attention_heads":)" << model.heads << R"(,"attention_head_dim":)"
        << model.width / model.heads << R"(,"num_layers":)" << model.depth
        << R"(,"num_embeds_ada_norm":)" << model.table_classes() << more << "}";
  }
  void write_scheduler(const std::string& prediction) {
    std::ofstream(folder_ / "public/scheduler/scheduler_config.json")
        << R"({"_class_name":"DDIMScheduler","prediction_type":")" << prediction << R"("})";
  }
  Result<Converted> convert(InitObjective objective = InitObjective::kByScheduler) {
    fs::remove_all(converted());
    return convert_pretrained(transformer(), converted(), objective);
  }
  std::vector<at::Tensor> result(const ModelSpec& model) {
    const auto file =
        storage::Safetensors::open(converted() + "/diffusion_pytorch_model.safetensors");
    EXPECT_TRUE(file) << (file ? "" : file.error().message);
    const auto weights = exported_weights(*file, model);
    EXPECT_TRUE(weights) << (weights ? "" : weights.error().message);
    return weights.value_or(std::vector<at::Tensor>{});
  }
  static std::vector<at::Tensor> random_weights(const ModelSpec& model) {
    at::manual_seed(4);
    std::vector<at::Tensor> weights;
    for (const auto& parameter : parameter_shapes(model))
      weights.push_back(at::randn(parameter.shape) * 0.2);
    return weights;
  }
  std::string refusal() {
    const auto made = convert();
    EXPECT_FALSE(made);
    EXPECT_FALSE(fs::exists(converted() + "/diffusion_pytorch_model.safetensors"));
    return made ? "" : made.error().message;
  }

  TempFolder folder_;
};

TEST_F(PretrainedTest, EveryTypeInOneFileOrShardsBecomesF32WithoutItsVariance) {
  for (const auto& [model, name] : {std::pair{tiny_model(), "DiTTransformer2DModel"},
                                    std::pair{tiny_pixart(), "PixArtTransformer2DModel"}}) {
    const std::vector<at::Tensor> trained = random_weights(model);
    for (const at::ScalarType type : {at::kFloat, at::kHalf, at::kBFloat16}) {
      const Form form{.type = type, .sigma = true, .shards = type == at::kHalf};
      write(weights_of(model, trained, form), form);
      write_config(model, name, R"(,"out_channels":2,"caption_channels":12)");
      const auto made = convert();
      ASSERT_TRUE(made) << made.error().message;
      EXPECT_EQ(made->model.width, model.width);
      EXPECT_EQ(made->model.caption_dim, model.caption_dim);
      EXPECT_TRUE(made->had_variance);
      EXPECT_FALSE(made->was_ddpm);
      const auto found = result(model);
      ASSERT_EQ(found.size(), trained.size());
      for (std::size_t i = 0; i < found.size(); ++i)
        EXPECT_TRUE(at::equal(found[i], trained[i].to(type).to(at::kFloat))) << i;
    }
  }
}

TEST_F(PretrainedTest, TheOldClassIsEitherKindByItsNorm) {
  const ModelSpec model = tiny_pixart();
  write(weights_of(model, random_weights(model), {}));
  write_config(model, "Transformer2DModel",
               R"(,"norm_type":"ada_norm_single","caption_channels":12,)"
               R"("interpolation_scale":0.5)");
  const auto made = convert();
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(made->model.interpolation_scale, 0.5);
  write_config(model, "Transformer2DModel", R"(,"norm_type":"layer_norm")");
  EXPECT_THAT(refusal(), HasSubstr("config.json: _class_name: expected DiTTransformer2DModel"));
}

TEST_F(PretrainedTest, WhatCannotBeTrainedIsRefusedByName) {
  const ModelSpec pixart = tiny_pixart(), dit = tiny_model();
  write(weights_of(pixart, random_weights(pixart), {}));
  write_config(pixart, "PixArtTransformer2DModel",
               R"(,"caption_channels":12,"use_additional_conditions":true)");
  EXPECT_THAT(refusal(), HasSubstr("micro-conditions"));
  write_config(pixart, "PixArtTransformer2DModel", R"(,"caption_channels":16)");
  EXPECT_THAT(refusal(), HasSubstr("caption_projection.linear_1.weight is [16, 12], expected"));
  write_config(dit, "DiTTransformer2DModel");
  EXPECT_THAT(refusal(), HasSubstr("is missing"));

  Weights weights = weights_of(dit, random_weights(dit), {});
  for (auto& [name, tensor] : weights) {
    if (name == "transformer_blocks.1.norm1.emb.timestep_embedder.linear_2.bias")
      tensor = tensor + 1;
  }
  write(weights);
  write_config(dit, "DiTTransformer2DModel");
  EXPECT_THAT(refusal(), HasSubstr("linear_2.bias differs from that of block 0"));
  fs::remove(transformer() + "/config.json");
  EXPECT_THAT(refusal(), HasSubstr("cannot read"));
}

// [n,W] of a time embedder at these timesteps.
at::Tensor embedding(const std::vector<at::Tensor>& weights, const at::Tensor& steps,
                     double slowest) {
  const auto frequencies = at::exp(at::arange(128, at::kFloat) * (-std::log(10000.0) / slowest));
  const auto angle = at::outer(steps, frequencies);
  const auto features = at::cat({angle.cos(), angle.sin()}, 1);
  return at::linear(at::silu(at::linear(features, weights[2], weights[3])), weights[4], weights[5]);
}

TEST_F(PretrainedTest, TheTimeOfADdpmBecomesThatOfAFlowWithAsMuchNoise) {
  for (const auto& [model, name, slowest] :
       {std::tuple{tiny_model(), "DiTTransformer2DModel", 127.0},
        std::tuple{tiny_pixart(), "PixArtTransformer2DModel", 128.0}}) {
    ModelSpec wide = model;
    wide.width = 64;
    const std::vector<at::Tensor> trained = initial_weights(wide, 1, 0, 0);
    write(weights_of(wide, trained, {}));
    write_config(wide, name, R"(,"caption_channels":12)");
    write_scheduler("epsilon");
    const auto made = convert();
    ASSERT_TRUE(made) << made.error().message;
    EXPECT_TRUE(made->was_ddpm);
    const auto found = result(wide);
    for (std::size_t i = 0; i < found.size(); ++i)
      EXPECT_EQ(at::equal(found[i], trained[i]), i != 4 && i != 5) << i;
    // Step s of DDPM has σ/α = √(1/ᾱ − 1), a flow's t has t/(1 − t).
    const auto signal = at::cumprod(1 - at::linspace(1e-4, 0.02, 1000, at::kDouble), 0);
    const auto steps = at::arange(20, 980, 60, at::kLong);
    const auto ratio = ((1 - signal) / signal).sqrt().index_select(0, steps);
    const auto t = (ratio / (1 + ratio)).to(at::kFloat);
    const auto wanted = embedding(trained, steps.to(at::kFloat), slowest);
    const double divisor = slowest;  // clang 14 captures no binding
    const auto error = [&](const std::vector<at::Tensor>& weights) {
      return ((embedding(weights, 1000 * t, divisor) - wanted).norm() / wanted.norm())
          .item<double>();
    };
    EXPECT_LT(error(found), 0.6 * error(trained));
    write_scheduler("flow_prediction");
    ASSERT_TRUE(convert());
    EXPECT_TRUE(at::equal(result(wide)[4], trained[4]));
    const auto asked = convert(InitObjective::kEpsilon);
    ASSERT_TRUE(asked) << asked.error().message;
    EXPECT_TRUE(at::equal(result(wide)[4], found[4]));
  }
}

// A toy: a DiT that predicts the noise of DDPM, and what a run makes of it in
// 30 steps.
class PretrainedToy : public PretrainedTest {
 protected:
  PretrainedToy() {
    dit_.width = pixart_.width = 32;
    dit_.heads = pixart_.heads = 4;
    draws_.batch_size = 32;
    write(weights_of(dit_, train_noise(), {}));
    write_config(dit_, "DiTTransformer2DModel");
    write_scheduler("epsilon");
  }
  std::vector<at::Tensor> train_noise() {
    const TrainingSet set = TrainingSet::open({shard_}, dit_).value();
    std::vector<at::Tensor> weights = initial_weights(dit_, 3, 0, 0);
    for (at::Tensor& weight : weights) weight.set_requires_grad(true);
    const Dit dit(dit_, weights, torch::kCPU, cpu_kernels());
    torch::optim::AdamW optimiser(dit.weights(), torch::optim::AdamWOptions(3e-3).weight_decay(0));
    const auto signal =
        at::cumprod(1 - at::linspace(1e-4, 0.02, 1000, at::kDouble), 0).to(at::kFloat);
    SampleOrder order(draws_, set.size());
    at::manual_seed(5);
    for (std::uint64_t step = 0; step < 400; ++step) {
      const Batch batch = make_batch(set, order, dit_, draws_, step, 0, 32);
      // x_t = (1 − t)·x0 + t·ε and its velocity ε − x0 give both.
      const auto level = batch.t.view({-1, 1, 1, 1});
      const auto x0 = batch.x_t - level * batch.target, noise = batch.target + x0;
      const auto steps = at::randint(1000, {32}, at::kLong);
      const auto kept = signal.index_select(0, steps).view({-1, 1, 1, 1});
      const auto out = dit.forward(kept.sqrt() * x0 + (1 - kept).sqrt() * noise,
                                   steps.to(at::kFloat) / 1000, {.labels = batch.labels});
      optimiser.zero_grad();
      at::mse_loss(out, noise).backward();
      optimiser.step();
    }
    std::vector<at::Tensor> trained;
    for (const at::Tensor& weight : dit.weights()) trained.push_back(weight.detach());
    return trained;
  }
  double loss_after(const ModelSpec& model, const std::vector<std::string>& files) const {
    TrainSpec train = draws_;
    train.learning_rate = 3e-3;
    train.kernels = KernelChoice::kFast;
    train.seed = 9;
    auto trainer = Trainer::create(model, train, files);
    EXPECT_TRUE(trainer) << (trainer ? "" : trainer.error().message);
    double last = 0;
    for (int i = 0; i < 35; ++i) {
      const auto step = trainer->step();
      EXPECT_TRUE(step) << (step ? "" : step.error().message);
      if (i >= 30) last += step->loss / 5;  // the loss before its update
    }
    return last;
  }
  std::string weights_file() const { return converted() + "/diffusion_pytorch_model.safetensors"; }

  ModelSpec dit_ = tiny_model(), pixart_ = tiny_pixart();
  TrainSpec draws_ = tiny_training();
  std::string shard_ = write_shard(folder_ / "shard", dit_, 240);
};

TEST_F(PretrainedToy, OfNoiseIsFarAheadOfARandomModel) {
  const auto made = convert();
  ASSERT_TRUE(made) << made.error().message;
  const double random = loss_after(dit_, {shard_}),
               ahead = loss_after(dit_, {shard_, weights_file()});
  EXPECT_LT(ahead, 0.5 * random) << ahead << " against " << random;
}

TEST_F(PretrainedToy, OfLabelsIsAheadOfARandomModelAsItStartsToReadCaptions) {
  const auto made = convert_pretrained(transformer(), converted(), InitObjective::kByScheduler, 12);
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(made->model.caption_dim, 12);
  const auto config = read_pretrained_config(converted());
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->model, made->model);
  const auto weights = result(pixart_);
  const auto shapes = parameter_shapes(pixart_);
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    if (shapes[i].name.find("attn2.to_out") == std::string::npos) continue;
    EXPECT_EQ(weights[i].abs().max().item<float>(), 0) << shapes[i].name;
  }
  const std::string captions = write_captions(folder_ / "captions", pixart_),
                    shard = write_shard(folder_ / "captioned", pixart_, 240);
  const double random = loss_after(pixart_, {captions, shard}),
               ahead = loss_after(pixart_, {captions, shard, weights_file()});
  EXPECT_LT(ahead, 0.6 * random) << ahead << " against " << random;
  // What is made so is a flow's, also beside the scheduler that it came from.
  const auto again = schedule_of(converted(), InitObjective::kByScheduler);
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_FALSE(*again);
}

TEST_F(PretrainedTest, CaptionsOfAnotherSizeAreRefused) {
  const ModelSpec pixart = tiny_pixart();
  write(weights_of(pixart, random_weights(pixart), {}));
  write_config(pixart, "PixArtTransformer2DModel", R"(,"caption_channels":12)");
  const auto made = convert_pretrained(transformer(), converted(), InitObjective::kByScheduler, 16);
  ASSERT_FALSE(made);
  EXPECT_THAT(made.error().message, HasSubstr("captions of 12 numbers a token, expected 16"));
}

}  // namespace
}  // namespace skerry::diffusion
