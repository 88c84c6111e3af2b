// SPDX-License-Identifier: Apache-2.0
// The shape of a model and the recipe of its training, as plain values. A call
// of validate() checks all of it before a tensor exists; no other code in the
// folder checks it again.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace skerry {

// The shape of a DiT (Peebles & Xie, "Scalable Diffusion Models with
// Transformers"), which labels condition. With caption_dim it is a PixArt (Chen
// et al., arXiv 2310.00426), which captions condition. Does not include
// LibTorch.
struct ModelSpec {
  std::uint32_t image_size = 28;
  std::uint32_t channels = 1;
  std::uint32_t patch_size = 4;
  std::uint32_t width = 128;
  std::uint32_t depth = 4;
  std::uint32_t heads = 4;
  std::uint32_t classes = 0;  // 0: unlabelled
  // > 0: a router, which returns so many logits instead of a velocity
  std::uint32_t router_experts = 0;
  std::uint32_t caption_dim = 0;  // > 0: a PixArt, whose captions have so many numbers a token
  // > 1 stretches a PixArt's grid of positions less than the image_size does
  double interpolation_scale = 1;
  // the longest caption; only plans of memory and speed read it
  std::uint32_t caption_tokens = 0;

  bool operator==(const ModelSpec&) const = default;

  bool is_pixart() const { return caption_dim > 0; }
  // Unlabelled models keep one unused class, because the exported model must
  // name at least one.
  std::uint32_t table_classes() const { return classes == 0 ? 1 : classes; }
  std::uint32_t null_label() const { return table_classes(); }  // the last row of the label table
  std::uint32_t tokens() const { return (image_size / patch_size) * (image_size / patch_size); }
  std::uint64_t pixels() const { return std::uint64_t{channels} * image_size * image_size; }
};

// "S/2" … "XL/8": width, depth, heads and patch size of the paper; the other
// fields keep their defaults.
Result<ModelSpec> model_preset(std::string_view name);
Result<void> validate(const ModelSpec& model);

// What reads the samples of a run. By the dataset: a PixArt if it has text,
// else a DiT.
enum class Architecture { kByDataset, kDit, kPixart };
Result<Architecture> parse_architecture(std::string_view name);  // auto, dit, pixart
const char* to_string(Architecture architecture);
// RETURNS: whether a model of this choice is a PixArt.
// ON FAILURE: kInvalid: a PixArt for a dataset without text.
Result<bool> reads_captions(Architecture architecture, bool dataset_has_text);

enum class Schedule { kConstant, kLinear, kCosine, kCyclic };
Result<Schedule> parse_schedule(std::string_view name);  // constant, linear, cosine, cyclic
const char* to_string(Schedule schedule);

// The distribution of the noise level t. Uniform in [0,1), or t = 1 / (1 +
// e^−n) with n normal: fewer samples near the ends. Stable Diffusion 3 trains
// with the latter (arXiv 2403.03206, "rf/lognorm(0.00, 1.00)").
enum class TimeDistribution { kUniform, kLogNormal };
Result<TimeDistribution> parse_time_distribution(std::string_view name);  // uniform, lognormal
const char* to_string(TimeDistribution distribution);

// The implementation of a training step. The reference is a composition of
// LibTorch's operators, which a small PyTorch program repeats bit for bit
// (tests/oracle). The fast kernels compute the same formulas with other
// roundings.
enum class KernelChoice { kReference, kFast };
Result<KernelChoice> parse_kernel_choice(std::string_view name);  // reference, fast
const char* to_string(KernelChoice kernels);

// The type of AdamW's moments and of the mean of weights between steps, in
// memory and in checkpoints. Full is fp32; lean is bf16, rounded after every
// step (lean.h). The weights are fp32 in both.
enum class StateForm { kFull, kLean };
Result<StateForm> parse_state_form(std::string_view name);  // full, lean
const char* to_string(StateForm state);

struct TrainSpec {
  std::uint64_t seed = 0;
  std::uint32_t expert = 0;
  std::uint32_t attempt = 0;  // raised after a non-finite weight, to draw other numbers
  std::uint64_t steps = 2000;
  std::uint32_t batch_size = 64;
  double learning_rate = 1e-4;
  Schedule schedule = Schedule::kConstant;
  std::uint64_t warmup_steps = 0;
  std::uint64_t cycle_steps = 0;  // of the cyclic schedule
  double clip = 0;                // limit of the global gradient norm; 0: none
  double ema = 0.9999;
  double label_dropout = 0.1;
  double weight_decay = 0;
  TimeDistribution t_distribution = TimeDistribution::kUniform;
  bool flip = false;         // mirrors half of the images left to right; of latents the columns
  bool weight_norm = false;  // holds the rows of attention and MLP at one length (held_lengths)
  std::uint32_t threads = 1;
  std::string precision = "fp32";  // or bf16: the type of matrix products, in any state form
  KernelChoice kernels = KernelChoice::kReference;
  bool gradient_checkpointing = false;  // less memory for more time; the same bits
  StateForm state = StateForm::kFull;
  std::uint32_t micro_batch =
      0;  // samples at a time, whose gradients are summed; 0: the whole batch
  std::vector<std::uint32_t>
      shard_partitions;  // a router's training: of each shard, in their order
  int device = 0;        // CUDA device where there is one; −1: the CPU
  // So many devices from `device` on, or so many threads of the CPU, share each
  // batch. The bits are those of one with micro_batch = batch_size / cards.
  std::uint32_t cards = 1;
};

Result<void> validate(const TrainSpec& train);

// RETURNS: the samples that go through the model at a time, at most
// micro_batch.
std::uint32_t rows_at_a_time(const TrainSpec& train);

// RETURNS: the learning rate of step `step` (0 is the first). After a linear
// warm-up it depends on the schedule:
// - constant: it stays.
// - linear: it falls to 0 at `steps`.
// - cosine: it falls by a cosine to 0 at `steps`.
// - cyclic: it falls by a cosine in each cycle_steps, and starts again from the
//   top.
double learning_rate_at(const TrainSpec& train, std::uint64_t step);
// RETURNS: the EMA's decay at step `step` (0 is the first): min(ema,
// (1+s)/(10+s)), so that the EMA forgets the initial weights.
double ema_decay_at(const TrainSpec& train, std::uint64_t step);

}  // namespace skerry
