// SPDX-License-Identifier: Apache-2.0
#include "diffusion/train/train_batch.h"

#include <cmath>

#include "base/random.h"
#include "diffusion/model/padded.h"

namespace skerry::diffusion {
namespace {

Stream stream_at(const TrainSpec& train, std::uint64_t step, std::uint32_t row, Purpose purpose) {
  return Stream({.seed = train.seed,
                 .expert = train.expert,
                 .attempt = train.attempt,
                 .step = step,
                 .sample = row,
                 .purpose = purpose});
}

// Of a label or a caption.
bool draw_dropped(const TrainSpec& train, std::uint64_t step, std::uint32_t row) {
  return stream_at(train, step, row, Purpose::kLabelDropout).uniform() < train.label_dropout;
}

std::int64_t draw_label(const ModelSpec& model, const TrainSpec& train, std::uint64_t step,
                        std::uint32_t row, std::int32_t label) {
  return draw_dropped(train, step, row) || label < 0 ? std::int64_t{model.null_label()}
                                                     : std::int64_t{label};
}

void add_captions(const TrainingSet& set, SampleOrder& order, const ModelSpec& model,
                  const TrainSpec& train, std::uint64_t step, std::uint32_t first,
                  std::uint32_t rows, bool pinned, Batch& batch) {
  std::vector<std::string_view> captions;
  for (std::uint32_t row = first; row < first + rows; ++row) {
    const std::uint64_t index = order.at(step * train.batch_size + row);
    captions.push_back(draw_dropped(train, step, row) ? set.null_caption(index)
                                                      : set.caption(index));
  }
  Condition condition = padded(captions, model.caption_dim, pinned);
  batch.captions = std::move(condition.captions);
  batch.mask = std::move(condition.mask);
}

float draw_time(const TrainSpec& train, std::uint64_t step, std::uint32_t row) {
  Stream stream = stream_at(train, step, row, Purpose::kTime);
  if (train.t_distribution == TimeDistribution::kUniform)
    return static_cast<float>(stream.uniform());
  return static_cast<float>(1 / (1 + std::exp(-stream.normal())));
}

bool draw_flip(const TrainSpec& train, std::uint64_t step, std::uint32_t row) {
  return train.flip && stream_at(train, step, row, Purpose::kFlip).uniform() < 0.5;
}

// `width` values a line, each line backwards where `flipped`. ε is drawn into
// `x_t` and mixed in place.
void fill_row(std::span<const float> image, std::size_t width, bool flipped, float t,
              std::span<float> x_t, std::span<float> target, Stream noise) {
  noise.fill_normal(x_t);
  for (std::size_t line = 0; line < x_t.size(); line += width) {
    for (std::size_t column = 0; column < width; ++column) {
      const std::size_t i = line + column;
      const float x0 = image[line + (flipped ? width - 1 - column : column)];
      const float epsilon = x_t[i];
      x_t[i] = (1.0F - t) * x0 + t * epsilon;
      target[i] = epsilon - x0;
    }
  }
}

}  // namespace

Batch make_batch(const TrainingSet& set, SampleOrder& order, const ModelSpec& model,
                 const TrainSpec& train, std::uint64_t step, std::uint32_t first,
                 std::uint32_t rows, bool pinned) {
  const std::int64_t size = model.image_size;
  Batch batch;
  const at::TensorOptions floats = at::TensorOptions(at::kFloat).pinned_memory(pinned);
  const at::TensorOptions wholes = floats.dtype(at::kLong);
  batch.x_t = at::empty({rows, model.channels, size, size}, floats);
  batch.target = at::empty({rows, model.channels, size, size}, floats);
  batch.t = at::empty({rows}, floats);
  if (model.is_pixart()) {
    add_captions(set, order, model, train, step, first, rows, pinned, batch);
  } else {
    batch.labels = at::empty({rows}, wholes);
  }
  if (model.router_experts > 0) batch.partitions = at::empty({rows}, wholes);
  const std::size_t pixels = model.pixels();
  std::vector<float> image(pixels);
  for (std::uint32_t i = 0; i < rows; ++i) {
    const std::uint32_t row = first + i;
    const std::uint64_t index = order.at(step * train.batch_size + row);
    const float t = draw_time(train, step, row);
    batch.t.data_ptr<float>()[i] = t;
    if (!model.is_pixart()) {
      batch.labels.data_ptr<std::int64_t>()[i] =
          draw_label(model, train, step, row, set.label(index));
    }
    if (model.router_experts > 0)
      batch.partitions.data_ptr<std::int64_t>()[i] = set.partition(index);
    set.read(index, image);
    fill_row(image, model.image_size, draw_flip(train, step, row), t,
             {batch.x_t.data_ptr<float>() + i * pixels, pixels},
             {batch.target.data_ptr<float>() + i * pixels, pixels},
             stream_at(train, step, row, Purpose::kNoise));
  }
  return batch;
}

}  // namespace skerry::diffusion
