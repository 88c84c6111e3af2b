// SPDX-License-Identifier: Apache-2.0
#include "storage/safetensors.h"

#include "base/check.h"
#include "diffusion/formats/source.h"
#include "tests/fuzz/memory_file.h"
#include "tests/fuzz/samples.h"
#include "tests/fuzz/targets.h"

namespace skerry::fuzz {

using namespace storage;

namespace {

// The same file as latents and their labels.
void read_latents(std::string_view input) {
  static MemoryFile file;
  file.set(input);
  auto source = diffusion::open_latent_source("", {file.path()});
  SKERRY_CHECK(source.has_value(), "opening a source reads nothing");
  read_all(**source, [](const diffusion::SourceSample& sample) {
    SKERRY_CHECK(sample.latent.has_value() && !sample.image, "a sample that is no latent");
    check_latent(*sample.latent);
  });
}

}  // namespace

Verdict safetensors(std::string_view input) {
  const auto parsed = Safetensors::parse(std::string(input));
  if (!parsed) return Verdict::kRefused;
  const SafetensorsHeader& header = parsed->header();
  if (header.find("latents") != nullptr) read_latents(input);
  SKERRY_CHECK(header.total_bytes == input.size() && header.data_start <= input.size(),
               "sizes contradict the file");
  std::vector<TensorView> views;
  std::uint64_t bytes = 0;
  for (const TensorInfo& tensor : header.tensors) {
    SKERRY_CHECK(tensor.begin == bytes && tensor.begin <= tensor.end &&
                     tensor.end <= input.size() - header.data_start,
                 "tensor ", tensor.name, " from ", tensor.begin, " to ", tensor.end);
    SKERRY_CHECK(header.find(tensor.name) == &tensor, "two tensors ", tensor.name);
    bytes = tensor.end;
    views.push_back(parsed->view(tensor));
  }
  SKERRY_CHECK(header.data_start + bytes == input.size(), "data of no tensor");
  const auto encoded = encode_safetensors(views, header.metadata);
  SKERRY_CHECK(encoded.has_value(), "refused when encoded again: ", encoded.error().message);
  const auto again = Safetensors::parse(*encoded);
  SKERRY_CHECK(again.has_value() && again->header().metadata == header.metadata,
               "metadata differs");
  SKERRY_CHECK(again->header().tensors.size() == header.tensors.size(), "tensors were lost");
  for (const TensorView& view : views) {
    const auto kept = again->tensor(view.name);
    SKERRY_CHECK(kept.has_value() && kept->shape == view.shape && kept->dtype == view.dtype &&
                     kept->data == view.data,
                 "tensor ", view.name, " differs when encoded again");
  }
  return Verdict::kAccepted;
}

}  // namespace skerry::fuzz
