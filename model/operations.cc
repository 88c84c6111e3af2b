// SPDX-License-Identifier: Apache-2.0
#include "model/operations.h"

#include <array>
#include <cctype>
#include <string_view>

#include "model/shapes.h"

namespace skerry {

double forward_flops(const ModelSpec& model) {
  const double width = model.width, depth = model.depth, tokens = model.tokens();
  const double patch = 1.0 * model.patch_size * model.patch_size * model.channels;
  const double ends = 2 * patch * width;                 // into the width, and out of it
  const double block = 12 * width * width;               // query, key, value, out; MLP
  const double attention = 2 * tokens * tokens * width;  // scores, and what they mix
  const double embedder = static_cast<double>(kTimeFeatures) * width + width * width;
  const double square = width * width;
  const double dit_modulation = depth * 6 * square + 2 * square;
  const double modulation = model.is_pixart() ? 6 * square : dit_modulation;
  double products = tokens * (ends + depth * block) + depth * attention + embedder + modulation;
  if (model.is_pixart()) {
    const double words = model.caption_tokens;
    const double projection = words * (model.caption_dim * width + square);
    // Query and out of each token, key and value of each word.
    const double cross = (tokens + words) * 2 * square + 2 * tokens * words * width;
    products += projection + depth * cross;
  }
  return 2 * products;
}

namespace {

struct Peaks {
  std::string_view name;
  double bf16, fp32;
};

// GeForce cards under the whole name that follows "NVIDIA ": their Ti, SUPER, D
// and laptop variants are other chips. NVIDIA's "RTX Blackwell GPU
// Architecture" (v1.1), "Ada GPU Architecture" and "Ampere GA102 GPU
// Architecture", FP16 and BF16 tensor with FP32 accumulate, without sparsity.
// The 4090 D by its 1,177 AI TOPS, eight times what it has here, as the 4090's
// 1,321.
constexpr std::array kGeForce{
    Peaks{"GeForce RTX 5090", 209.5e12, 104.8e12}, Peaks{"GeForce RTX 5080", 112.6e12, 56.3e12},
    Peaks{"GeForce RTX 4090", 165.2e12, 82.6e12}, Peaks{"GeForce RTX 4090 D", 147.1e12, 73.5e12},
    Peaks{"GeForce RTX 3090", 71e12, 35.6e12}};

// Other cards by words within their names; the more specific words come first.
// The numbers are from data sheets, without sparsity:
// - "NVIDIA HGX B200" (an eighth of its 36 PFLOPS with sparsity, and of its 600
//   TFLOPS)
// - "GB200 NVL72" (a 72nd)
// - "H200", "H100", "A100", "A40", "A30", "A10", "L40S", "L40", "L4"
// - "RTX PRO 6000 Blackwell" (each edition), "RTX 6000 Ada", "RTX A6000"
// - the A10G from AWS
// - H20 and L20 from the tables that NVIDIA gave to resellers
constexpr std::array kCards{
    Peaks{"GB200", 2500e12, 80e12},
    Peaks{"B200", 2250e12, 75e12},
    Peaks{"GH200", 989.4e12, 66.9e12},
    Peaks{"H200", 989.4e12, 66.9e12},
    Peaks{"H100 PCIe", 756e12, 51e12},
    Peaks{"H100 NVL", 835e12, 60e12},
    Peaks{"H100", 989.4e12, 66.9e12},
    Peaks{"H20", 148e12, 44e12},
    Peaks{"A100", 312e12, 19.5e12},
    Peaks{"A40", 149.7e12, 37.4e12},
    Peaks{"A30", 165e12, 10.3e12},
    Peaks{"A10G", 70e12, 31.5e12},
    Peaks{"A10", 125e12, 31.2e12},
    Peaks{"L40S", 362e12, 91.6e12},
    Peaks{"L40", 181e12, 90.5e12},
    Peaks{"L20", 119.5e12, 59.8e12},
    Peaks{"L4", 121e12, 30.3e12},
    Peaks{"RTX PRO 6000 Blackwell Max-Q Workstation Edition", 438.9e12, 109.7e12},
    Peaks{"RTX PRO 6000 Blackwell Workstation Edition", 503.8e12, 126e12},
    Peaks{"RTX PRO 6000 Blackwell Server Edition", 480e12, 120e12},
    Peaks{"RTX 6000 Ada", 364.2e12, 91.1e12},
    Peaks{"RTX A6000", 154.8e12, 38.7e12}};

// Whole words: A10 is not within A100, nor B200 within GB200.
bool has_words(std::string_view name, std::string_view words) {
  const auto is_part = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; };
  for (std::size_t at = name.find(words); at != std::string_view::npos;
       at = name.find(words, at + 1)) {
    const std::size_t end = at + words.size();
    if ((at == 0 || !is_part(name[at - 1])) && (end == name.size() || !is_part(name[end])))
      return true;
  }
  return false;
}

}  // namespace

std::optional<double> published_peak(const std::string& device_name, const std::string& precision) {
  const auto peak = [&](const Peaks& card) { return precision == "bf16" ? card.bf16 : card.fp32; };
  for (const Peaks& card : kGeForce) {
    if (device_name.ends_with(card.name)) return peak(card);
  }
  for (const Peaks& card : kCards) {
    if (has_words(device_name, card.name)) return peak(card);
  }
  return std::nullopt;
}

}  // namespace skerry
