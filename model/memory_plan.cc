// SPDX-License-Identifier: Apache-2.0
#include "model/memory_plan.h"

#include <algorithm>
#include <cmath>

#include "model/shapes.h"

namespace skerry {
namespace {

constexpr double kFloat = 4;
constexpr double kKept = 3;                 // two moments and the mean, beside the weights
constexpr double kContextBytes = 0.75e9;    // driver, LibTorch's own kernels, cuBLAS
constexpr double kUsableShare = 11.0 / 12;  // the rest is gaps

std::uint64_t whole(double bytes) { return static_cast<std::uint64_t>(std::ceil(bytes)); }

// Of one sample: [T,W] and [heads,T,T]; of its caption [N,W] and [heads,T,N].
struct Extents {
  explicit Extents(const ModelSpec& model)
      : wide(1.0 * model.tokens() * model.width),
        scores(1.0 * model.heads * model.tokens() * model.tokens()),
        text(model.is_pixart() ? 1.0 * model.caption_tokens * model.width : 0),
        text_scores(model.is_pixart() ? 1.0 * model.heads * model.tokens() * model.caption_tokens
                                      : 0) {}
  double wide, scores, text, text_scores;
};

// What cross-attention adds to that: what its query is made of, the query,
// key and value, mixed.
double cross_block_bytes(const Extents& size, bool bf16, bool fast) {
  const double product = bf16 ? 2 : kFloat;
  const double weights = fast ? 0 : kFloat + (bf16 ? product : 0);
  return (3 * size.wide + 2 * size.text) * product + size.text_scores * weights;
}

// What a block keeps from its forward pass for its backward, operator by
// operator (model.cc).
double block_bytes(const Extents& size, bool bf16, bool fast) {
  const double product = bf16 ? 2 : kFloat;  // bytes of what a product takes and gives
  // Modulated twice, query key value, mixed, GELU's in and out.
  const double operands = (2 + 3 + 1 + 4 + 4) * product;
  if (fast) {
    const double sums =
        2 * kFloat;  // hidden states before and after attention, which both norms are made of
    const double parts = 2 * product;  // what attention and MLP add, before their gates
    return size.wide * (sums + parts + operands);
  }
  const double norms = 4 * kFloat;  // inputs of both norms, and what they make of them
  const double parts = 2 * kFloat;
  const double weights = kFloat + (bf16 ? product : 0);  // softmax, and as the operand of a product
  return size.wide * (norms + parts + operands) + size.scores * weights;
}

// The backward pass of a block holds this in addition: first the gradients on
// both sides of GELU. Later, once the MLP's tensors are freed, it holds those
// on both sides of the softmax.
double passing_bytes(const Extents& size, bool fast) {
  const double scores = std::max(size.scores, size.text_scores);
  return kFloat * (fast ? 7 * size.wide : std::max(7 * size.wide, 2 * scores - 7 * size.wide));
}

}  // namespace

std::uint64_t lean_scratch_bytes(std::uint64_t largest) {
  constexpr std::uint64_t kEach = 3 * sizeof(float) + 3 * sizeof(std::int64_t) + 1;
  return std::min(largest, kLeanSlice) * kEach;
}

MemoryPlan plan_memory(const ModelSpec& model, const TrainSpec& train) {
  const bool bf16 = train.precision == "bf16";
  const Extents size(model);
  MemoryPlan plan;
  std::uint64_t largest = 0;
  for (const ParameterShape& parameter : parameter_shapes(model)) {
    std::uint64_t count = 1;
    for (const std::int64_t extent : parameter.shape) count *= static_cast<std::uint64_t>(extent);
    plan.parameters += count;
    largest = std::max(largest, count);
  }
  const double cast = bf16 ? 2 : 0;  // autocast keeps the weights that it has cast
  const bool lean = train.state == StateForm::kLean;
  plan.checkpoint_bytes =
      plan.parameters * static_cast<std::uint64_t>(kFloat + kKept * (lean ? 2 : kFloat));
  plan.gradient_bytes = whole(static_cast<double>(plan.parameters) * kFloat);
  plan.state_bytes = plan.checkpoint_bytes + plan.gradient_bytes +
                     whole(static_cast<double>(plan.parameters) * cast) +
                     (lean ? lean_scratch_bytes(largest) : 0);
  const bool fast = train.kernels == KernelChoice::kFast && card_kernels_serve(model);
  // Query, key and value as the one matrix that their product keeps; in bf16 it
  // is what autocast keeps.
  const double joined = fast && !bf16 ? 3.0 * model.width * model.width * kFloat : 0;
  plan.state_bytes += whole(joined * (train.gradient_checkpointing ? 1 : model.depth));
  const double block =
      block_bytes(size, bf16, fast) + (model.is_pixart() ? cross_block_bytes(size, bf16, fast) : 0);
  const double kept =
      train.gradient_checkpointing ? model.depth * size.wide * kFloat + block : model.depth * block;
  // Of a caption: its tokens as they are and in fp32, GELU's in and out, the
  // text and its gradient.
  const double caption = 1.5 * model.caption_tokens * model.caption_dim + 4 * size.text;
  const double ends = kFloat * (3 * size.wide + 6 * static_cast<double>(model.pixels()) + caption);
  plan.sample_bytes = whole(kept + passing_bytes(size, fast) + ends);
  return plan;
}

std::uint64_t rows_that_fit(const MemoryPlan& plan, std::uint64_t card_bytes) {
  const double room = static_cast<double>(card_bytes) * kUsableShare - kContextBytes -
                      static_cast<double>(plan.state_bytes);
  if (room < static_cast<double>(plan.gradient_bytes)) return 0;
  return static_cast<std::uint64_t>(room / static_cast<double>(plan.sample_bytes));
}

std::uint64_t bytes_for_a_row(const MemoryPlan& plan) {
  const std::uint64_t passing = std::max(plan.sample_bytes, plan.gradient_bytes);
  return whole((static_cast<double>(plan.state_bytes + passing) + kContextBytes) / kUsableShare);
}

}  // namespace skerry
