// SPDX-License-Identifier: Apache-2.0
#include "diffusion/sample/sample.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "diffusion/sample/draw.h"
#include "diffusion/sample/solver.h"
#include "diffusion/testing/pretended_card.h"
#include "diffusion/testing/testing.h"
#include "diffusion/train/train.h"

namespace skerry::diffusion {
namespace {

using namespace testing;

// N(0, s²) data: v = (t − (1−t)·s²)/(t² + (1−t)²s²) · x carries N(0,1) at t = 1
// to N(0,s²), so x(0) = s·x(1).
double gaussian_error(Solver solver, std::uint32_t steps) {
  constexpr double kDeviation = 0.3;
  const auto start = at::linspace(-2, 2, 9, at::kDouble);
  const auto end = integrate(
      solver, steps, start,
      [&](const at::Tensor& x, double t) {
        const double variance = kDeviation * kDeviation;
        return x * ((t - (1 - t) * variance) / (t * t + (1 - t) * (1 - t) * variance));
      },
      nullptr);
  return (end - start * kDeviation).abs().max().item<double>();
}

TEST(Solver, ConvergesAtItsOrder) {
  EXPECT_LT(gaussian_error(Solver::kEuler, 200), 0.05);
  EXPECT_NEAR(gaussian_error(Solver::kEuler, 100) / gaussian_error(Solver::kEuler, 200), 2, 0.3);
  EXPECT_LT(gaussian_error(Solver::kHeun, 50), gaussian_error(Solver::kEuler, 100) / 4);
  EXPECT_LT(gaussian_error(Solver::kAdams, 100), gaussian_error(Solver::kEuler, 100) / 10);
  EXPECT_NEAR(gaussian_error(Solver::kAdams, 200) / gaussian_error(Solver::kAdams, 400), 4, 0.6);
}

TEST(Solver, CallsBackAfterEachStep) {
  std::vector<std::uint32_t> seen;
  (void)integrate(
      Solver::kHeun, 3, at::zeros({1}), [](const at::Tensor& x, double) { return x; },
      [&](std::uint32_t done) { seen.push_back(done); });
  EXPECT_EQ(seen, (std::vector<std::uint32_t>{1, 2, 3}));
}

TEST(Guidance, ExtrapolatesFromNullToLabel) {
  const auto label = at::full({1}, 3.0), null = at::full({1}, 1.0);
  EXPECT_EQ(guide(label, null, 0).item<double>(), 1);
  EXPECT_EQ(guide(label, null, 1).item<double>(), 3);
  EXPECT_EQ(guide(label, null, 2.5).item<double>(), 6);
}

// Two experts: the first has seen labels 0 and 1, the second labels 1 and 2,
// where it has three times as many of 1.
class EnsembleTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(folder_ / "router");
    std::ofstream(folder_ / "ensemble.json")
        << R"({"format":1,"run":"r","run_id":"r-0","dataset":"d",)"
        << R"("classes":["a","b","c"],"image_size":8,"channels":1,)"
        << R"("experts":[{"index":0},{"index":1}],)"
        << R"("model":{"width":16,"depth":2,"heads":2,"patch_size":4}})";
    write_counts(0, {10, 10, 0, 0});
    write_counts(1, {0, 30, 10, 0});
    for (const std::uint32_t k : {0U, 1U}) write_expert(k);
  }
  void write_counts(int expert, const std::vector<std::int64_t>& counts) {
    const std::string_view bytes(reinterpret_cast<const char*>(counts.data()), counts.size() * 8);
    ASSERT_TRUE(storage::write_safetensors(
        folder_ / text("router/partition-", expert, ".safetensors"),
        {{"label_counts", storage::DType::kI64, {counts.size()}, bytes}}, {}));
  }
  void write_expert(std::uint32_t expert) {
    std::filesystem::create_directories(folder_ / text("expert_", expert));
    std::vector<storage::TensorView> views;
    at::manual_seed(expert);
    std::vector<at::Tensor> weights;
    for (const auto& parameter : parameter_shapes(tiny_model())) {
      weights.push_back(at::randn(parameter.shape) * 0.1);
      views.push_back(
          {parameter.name,
           storage::DType::kF32,
           {parameter.shape.begin(), parameter.shape.end()},
           {static_cast<const char*>(weights.back().data_ptr()), weights.back().nbytes()}});
    }
    ASSERT_TRUE(storage::write_safetensors(
        folder_ / text("expert_", expert, "/diffusion_pytorch_model.safetensors"), views,
        {{"format", "pt"}}));
  }
  Samples draw(const SampleSpec& spec) {
    auto samples = sample_ensemble(folder_.path(), spec, nullptr);
    EXPECT_TRUE(samples) << (samples ? "" : samples.error().message);
    return samples ? *samples : Samples{};
  }
  static SampleSpec spec() {
    SampleSpec spec;
    spec.count = 12;
    spec.steps = 4;
    spec.seed = 5;
    spec.device = -1;
    return spec;
  }
  TempFolder folder_;
};

TEST_F(EnsembleTest, LabelsCycleAndExpertsHaveSeenThem) {
  SampleSpec many = spec();
  many.count = 300;
  many.steps = 1;
  const Samples samples = draw(many);
  int second_of_label_one = 0;
  for (std::size_t i = 0; i < samples.labels.size(); ++i) {
    EXPECT_EQ(samples.labels[i], static_cast<std::int32_t>(i % 3));
    EXPECT_TRUE(samples.labels[i] != 0 || samples.experts[i] == 0) << i;
    EXPECT_TRUE(samples.labels[i] != 2 || samples.experts[i] == 1) << i;
    if (samples.labels[i] == 1) second_of_label_one += samples.experts[i];
  }
  EXPECT_NEAR(second_of_label_one, 75, 20);
}

// Asks the pixels, and answers where they are.
struct TestRouter : Router {
  explicit TestRouter(torch::Device device) : on(device) {}
  at::Tensor log_probabilities(const at::Tensor& x_t, double t, const at::Tensor& labels) override {
    EXPECT_EQ(x_t.device(), on);
    EXPECT_EQ(labels.device(), on);
    const at::Tensor score = x_t.flatten(1).mean(1, /*keepdim=*/true) * (4 * t);  // [B,1]
    return at::log_softmax(at::cat({score, -score}, 1), 1);
  }
  torch::Device on;
};

// Routes, labels and times stay on the card: of a step the router's weights
// come to the host, and rows go back.
TEST_F(EnsembleTest, ACardDrawsWhatTheCpuDrawsAndIsWaitedForTwiceAStep) {
  const torch::Device card = PretendedCard::device();
  for (const Route route : {Route::kTop1, Route::kTop2, Route::kFull}) {
    SampleSpec asked = spec();
    asked.route = route;
    asked.guidance = 2;
    asked.keep_values = true;
    const auto drawn = [&](torch::Device on) {
      Ensemble ensemble = Ensemble::load(folder_.path(), Computing{.device = on}).value();
      TestRouter router(on);
      PretendedCard::forget();
      return draw_samples(ensemble, asked, nullptr, &router).value();
    };
    const Samples here = drawn(torch::kCPU), there = drawn(card);
    for (std::size_t i = 0; i < here.values.size(); ++i)
      ASSERT_NEAR(here.values[i], there.values[i], 1e-4);
    const auto waits = [&] {
      const CardCounts& counts = PretendedCard::counts();
      return counts.waited_copies + counts.queued_copies + counts.numbers_read;
    };
    const long four_steps = waits();
    asked.steps = 14;
    drawn(card);
    EXPECT_EQ(waits() - four_steps, 2 * 10);
  }
}

TEST_F(EnsembleTest, AnImageOfOneExpertKeepsNoCardWaiting) {
  SampleSpec asked = spec();
  asked.guidance = 2;
  const auto waits = [&](std::uint32_t steps) {
    asked.steps = steps;
    Ensemble ensemble =
        Ensemble::load(folder_.path(), Computing{.device = PretendedCard::device()}).value();
    PretendedCard::forget();
    EXPECT_EQ(draw_samples(ensemble, asked, nullptr).value().pixels, draw(asked).pixels);
    return PretendedCard::counts().waited_copies + PretendedCard::counts().numbers_read;
  };
  EXPECT_EQ(waits(2), waits(9));
}

TEST_F(EnsembleTest, ACardDrawsByItsOwnKernels) {
  struct CountingCard : Card {
    void launch(const std::string& kernel, Grid /*grid*/, void* /*stream*/,
                void** /*arguments*/) override {
      launched.insert(kernel);
    }
    std::set<std::string> launched;
  };
  const auto card = std::make_shared<CountingCard>();
  for (const bool bf16 : {false, true}) {
    card->launched.clear();
    Ensemble ensemble =
        Ensemble::load(folder_.path(), Computing{.kernels = cuda_kernels(card), .bf16 = bf16})
            .value();
    ASSERT_TRUE(draw_samples(ensemble, spec(), nullptr));
    std::set<std::string> expected;
    for (const char* kernel : {"add_gated", "bias_gelu", "gated_modulate", "modulate"}) {
      expected.insert(text(kernel, bf16 ? "_bf16" : "_float"));
    }
    EXPECT_EQ(card->launched, expected);
  }
}

TEST_F(EnsembleTest, Bf16IsForWhoAsksForIt) {
  SampleSpec asked = spec();
  asked.keep_values = true;
  const Samples plain = draw(asked);
  asked.precision = "bf16";
  const Samples rounded = draw(asked);
  EXPECT_NE(plain.values, rounded.values);
  for (std::size_t i = 0; i < plain.values.size(); ++i)
    ASSERT_NEAR(plain.values[i], rounded.values[i], 0.1);
  asked.precision = "fp8";
  const auto unknown = sample_ensemble(folder_.path(), asked, nullptr);
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().message, "expected a precision fp32 or bf16, found 'fp8'");
}

// The second expert was removed from a run of three: its label is unknown, and
// the third keeps its number.
TEST_F(EnsembleTest, ExpertsKeepTheirNumbersWhereOneIsMissing) {
  std::filesystem::rename(folder_ / "router/partition-1.safetensors",
                          folder_ / "router/partition-2.safetensors");
  std::filesystem::rename(folder_ / "expert_1", folder_ / "expert_2");
  std::ofstream(folder_ / "ensemble.json")
      << R"({"format":1,"classes":["a","b","c"],"image_size":8,"channels":1,)"
      << R"("experts":[{"index":0},{"index":2}],)"
      << R"("model":{"width":16,"depth":2,"heads":2,"patch_size":4}})";
  SampleSpec one = spec();
  one.label = 2;
  for (const std::int32_t expert : draw(one).experts) EXPECT_EQ(expert, 2);
  one.label = 0;
  for (const std::int32_t expert : draw(one).experts) EXPECT_EQ(expert, 0);
}

TEST_F(EnsembleTest, OneExpertDrawsEveryImageFromTheNoiseOfTheEnsembles) {
  SampleSpec asked = spec();
  asked.keep_values = true;
  const Samples ensemble = draw(asked);
  for (const std::int32_t expert : {0, 1}) {
    asked.expert = expert;
    const Samples alone = draw(asked);
    EXPECT_EQ(alone.experts, std::vector<std::int32_t>(asked.count, expert));
    EXPECT_EQ(alone.labels, ensemble.labels);
    const std::size_t values = alone.values.size() / asked.count;
    for (std::size_t i = 0; i < alone.values.size(); ++i) {
      if (ensemble.experts[i / values] == expert) {
        EXPECT_NEAR(alone.values[i], ensemble.values[i], 1e-4) << i;
      }
    }
    asked.route = Route::kTop1;  // for which this folder has no statistics
  }
  asked.expert = 2;
  const auto missing = sample_ensemble(folder_.path(), asked, nullptr);
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().message, "expert 2 is not of this ensemble, whose experts are 0, 1");
}

TEST_F(EnsembleTest, AnImageDependsOnItsNumberAndSeedOnly) {
  const Samples all = draw(spec());
  SampleSpec smaller = spec();
  smaller.count = 5;
  smaller.batch_size = 2;
  const Samples few = draw(smaller);
  ASSERT_EQ(few.pixels.size(), 5U * 64);
  for (std::size_t i = 0; i < few.pixels.size(); ++i)
    EXPECT_NEAR(few.pixels[i], all.pixels[i], 1) << i;
  SampleSpec reseeded = spec();
  ++reseeded.seed;
  EXPECT_NE(draw(reseeded).pixels, all.pixels);
}

// The products of other batches round otherwise, no more.
TEST_F(EnsembleTest, TheBatchChangesNoImage) {
  for (const Solver solver : {Solver::kEuler, Solver::kHeun, Solver::kAdams}) {
    SampleSpec one = spec();
    one.solver = solver;
    one.keep_values = true;
    const Samples all = draw(one);
    for (const std::uint32_t rows : {1U, 5U}) {
      one.batch_size = rows;
      const Samples parts = draw(one);
      EXPECT_EQ(parts.experts, all.experts);
      for (std::size_t i = 0; i < all.values.size(); ++i)
        EXPECT_NEAR(parts.values[i], all.values[i], 1e-4) << rows << ' ' << i;
    }
  }
}

TEST_F(EnsembleTest, ExpertsTakeTurnsWhereOneFits) {
  const Samples all = draw(spec());
  SampleSpec narrow = spec();
  narrow.resident = 1;
  EXPECT_EQ(draw(narrow).pixels, all.pixels);

  const auto x = at::zeros({2, 1, 8, 8}), t = at::full({2}, 0.5);
  const auto labels = at::zeros({2}, at::kLong);
  auto two = Ensemble::load(folder_.path(), -1), one = Ensemble::load(folder_.path(), -1, 1);
  ASSERT_TRUE(two && one);
  const Condition given{.labels = labels};
  for (const std::size_t k : {0U, 0U, 1U, 0U})
    EXPECT_TRUE(at::equal(one->velocity(k, x, t, given), two->velocity(k, x, t, given)));
  EXPECT_EQ(two->loads(), 2U);
  EXPECT_EQ(one->loads(), 5U);  // both at the start, then 0, 1 and 0 again
}

TEST_F(EnsembleTest, ValuesAreWhatPixelsWereRoundedFrom) {
  EXPECT_TRUE(draw(spec()).values.empty());
  SampleSpec kept = spec();
  kept.keep_values = true;
  const Samples samples = draw(kept);
  ASSERT_EQ(samples.values.size(), samples.pixels.size());
  for (std::size_t i = 0; i < samples.pixels.size(); ++i) {
    EXPECT_NEAR(std::clamp((samples.values[i] + 1) * 127.5F, 0.F, 255.F), samples.pixels[i], 0.51)
        << i;
  }
}

// Two shards, and an index that says which tensor is where, in place of expert
// 1's one file.
TEST_F(EnsembleTest, ReadsShardsWhereAnExpertHasThem) {
  const std::vector<std::uint8_t> whole = draw(spec()).pixels;
  const std::string weights = folder_ / "expert_1/diffusion_pytorch_model.safetensors";
  nlohmann::json index;
  {
    const auto file = storage::Safetensors::open(weights).value();
    std::vector<storage::TensorView> halves[2];
    const std::string names[] = {"a-00001-of-00002.safetensors", "a-00002-of-00002.safetensors"};
    for (const auto& info : file.header().tensors) {
      const std::size_t half = info.begin * 2 < file.header().total_bytes ? 0 : 1;
      halves[half].push_back(file.view(info));
      index["weight_map"][info.name] = names[half];
    }
    for (const std::size_t half : {0U, 1U})
      ASSERT_TRUE(
          storage::write_safetensors(folder_ / ("expert_1/" + names[half]), halves[half], {}));
  }
  std::filesystem::remove(weights);
  std::ofstream(weights + ".index.json") << index;
  EXPECT_EQ(draw(spec()).pixels, whole);

  index["weight_map"]["proj_out_1.bias"] = "../expert_0/diffusion_pytorch_model.safetensors";
  std::ofstream(weights + ".index.json") << index;
  const auto outside = sample_ensemble(folder_.path(), spec(), nullptr);
  ASSERT_FALSE(outside);
  EXPECT_NE(outside.error().message.find("outside its folder"), std::string::npos);
}

// Copies of a fetched folder may lose its links.
TEST_F(EnsembleTest, FindsExpertsAndRouterInTheModelsFolder) {
  const std::vector<std::uint8_t> linked = draw(spec()).pixels;
  std::filesystem::create_directories(folder_ / "transformer");
  for (const std::string name : {"expert_0", "expert_1", "router"})
    std::filesystem::rename(folder_ / name, folder_ / ("transformer/" + name));
  EXPECT_EQ(draw(spec()).pixels, linked);
}

TEST_F(EnsembleTest, GuidanceOfOneIsTheLabelAndZeroTheNull) {
  SampleSpec labelled = spec();
  labelled.label = 1;
  const Samples plain = draw(labelled);
  SampleSpec guided = labelled;
  guided.guidance = 1 + 1e-12;
  const Samples same = draw(guided);
  for (std::size_t i = 0; i < plain.pixels.size(); ++i)
    EXPECT_NEAR(plain.pixels[i], same.pixels[i], 1);
  guided.guidance = 5;
  EXPECT_NE(draw(guided).pixels, plain.pixels);
}

TEST_F(EnsembleTest, BadQuestionsGetClearAnswers) {
  SampleSpec bad = spec();
  bad.label = 3;
  EXPECT_FALSE(sample_ensemble(folder_.path(), bad, nullptr));
  bad = spec();
  bad.steps = 0;
  EXPECT_FALSE(sample_ensemble(folder_.path(), bad, nullptr));
  bad = spec();
  bad.solver = Solver::kAdams;
  bad.route = Route::kTop2;
  EXPECT_FALSE(sample_ensemble(folder_.path(), bad, nullptr));
  std::filesystem::remove(folder_ / "expert_1/diffusion_pytorch_model.safetensors");
  const auto missing = sample_ensemble(folder_.path(), spec(), nullptr);
  ASSERT_FALSE(missing);
  EXPECT_NE(missing.error().message.find("expert_1"), std::string::npos);
}

TEST_F(EnsembleTest, NearestImagesTellTheirLabel) {
  const auto shard = write_shard(folder_ / "shard", tiny_model(), 30);
  Samples samples;
  samples.channels = 1;
  samples.image_size = 8;
  samples.classes = {"a", "b", "c"};
  samples.labels = {0, 1, 2, 2, -1};
  for (const int label : {0, 1, 2, 0, 0}) {
    for (int p = 0; p < 64; ++p) samples.pixels.push_back(p % 8 <= 2 * label ? 220 : 40);
  }
  const auto agreement = nearest_label_agreement(samples, shard, 30);
  ASSERT_TRUE(agreement) << agreement.error().message;
  EXPECT_EQ(agreement->labelled, 4U);
  EXPECT_EQ(agreement->agree, 3U);
}

class LatentTest : public EnsembleTest {
 protected:
  void SetUp() override {
    EnsembleTest::SetUp();
    const std::string byte(1, '\0');
    ASSERT_TRUE(storage::write_safetensors(folder_ / "router/router.safetensors",
                                           {{"any", storage::DType::kU8, {1}, byte}},
                                           {{"latent_scale", "0.5"}, {"latent_shift", "0.25"}}));
  }
  // TorchScript of this body.
  std::string script(const std::string& body) {
    torch::jit::Module module("Decoder");
    module.define("def forward(self, z):\n  return " + body + "\n");
    module.save(folder_ / "decoder.pt");
    return folder_ / "decoder.pt";
  }
  std::string refusal(const std::string& autoencoder) {
    SampleSpec decoded = spec();
    decoded.autoencoder = autoencoder;
    const auto samples = sample_ensemble(folder_.path(), decoded, nullptr);
    return samples ? "drawn" : samples.error().message;
  }
};

TEST_F(LatentTest, AreDecodedAsTheirEncoderMadeThem) {
  SampleSpec raw = spec();
  raw.keep_values = true;
  const auto latents = torch::tensor(draw(raw).values).view({12, 1, 8, 8});
  SampleSpec decoded = raw;
  decoded.autoencoder = script("z.repeat(1, 3, 2, 2)");
  std::uint64_t last = 0, all = 0;
  const auto samples =
      sample_ensemble(folder_.path(), decoded, [&](std::uint64_t done, std::uint64_t total) {
        EXPECT_EQ(done, ++last);
        all = total;
      });
  ASSERT_TRUE(samples) << samples.error().message;
  EXPECT_EQ(samples->channels, 3U);
  EXPECT_EQ(samples->image_size, 16U);
  EXPECT_EQ(last, all) << "decoding is work too";
  const auto images = torch::tensor(samples->values).view({12, 3, 16, 16});
  EXPECT_TRUE(at::allclose(images, (latents / 0.5 + 0.25).repeat({1, 3, 2, 2}), 1e-4, 1e-4));
  ASSERT_EQ(samples->pixels.size(), 12U * 3 * 16 * 16);
  for (std::size_t i = 0; i < samples->pixels.size(); ++i)
    EXPECT_NEAR(std::clamp((samples->values[i] + 1) * 127.5F, 0.F, 255.F), samples->pixels[i], 0.51)
        << i;
}

TEST_F(LatentTest, WhatIsNoDecoderIsRefused) {
  EXPECT_NE(refusal(script("z.repeat(1, 2, 1, 1)")).find("expected 4 images [n,3,S,S]"),
            std::string::npos);
  EXPECT_NE(refusal(script("(z, z)")).find("found no tensor"), std::string::npos);
  EXPECT_NE(refusal(script("z.view([1, 1])")).find("cannot decode latents [4, 1, 8, 8]"),
            std::string::npos);
  EXPECT_NE(refusal(folder_ / "nothing").find("is not there"), std::string::npos);
  EXPECT_NE(refusal(folder_ / "ensemble.json").find("expected TorchScript"), std::string::npos);
  const std::string decoder = script("z.repeat(1, 3, 2, 2)");
  std::filesystem::remove(folder_ / "router/router.safetensors");
  EXPECT_NE(refusal(decoder).find("draws pixels"), std::string::npos);
}

TEST_F(LatentTest, ImagesOfSeveralSizesAreRefused) {
  SampleSpec decoded = spec();
  decoded.label = 0;
  decoded.count = 3;
  decoded.batch_size = 2;
  decoded.autoencoder = script("z.new_zeros([z.size(0), 3, z.size(0), z.size(0)])");
  const auto samples = sample_ensemble(folder_.path(), decoded, nullptr);
  ASSERT_FALSE(samples);
  EXPECT_NE(samples.error().message.find("as large as the first, 2, found 1"), std::string::npos)
      << samples.error().message;
}

TEST_F(LatentTest, AScaleThatIsNoneIsCorrupt) {
  const std::string byte(1, '\0');
  for (const char* scale : {"0", "-1", "inf", "x", ""}) {
    ASSERT_TRUE(storage::write_safetensors(folder_ / "router/router.safetensors",
                                           {{"any", storage::DType::kU8, {1}, byte}},
                                           {{"latent_scale", scale}, {"latent_shift", "0"}}));
    EXPECT_NE(refusal("").find("are not two numbers"), std::string::npos) << scale;
  }
}

}  // namespace
}  // namespace skerry::diffusion
