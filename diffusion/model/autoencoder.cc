// SPDX-License-Identifier: Apache-2.0
#include "diffusion/model/autoencoder.h"

#include <torch/csrc/jit/serialization/import.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "base/check.h"
#include "base/text.h"
#include "diffusion/formats/weight_files.h"
#include "diffusion/model/autoencoder_config.h"
#include "diffusion/model/weight_tensor.h"
#include "diffusion/runtime/device.h"

namespace skerry::diffusion {

struct Autoencoder::Half {
  virtual ~Half() = default;
  virtual at::Tensor apply(const at::Tensor& in) = 0;  // encodes or decodes, on its device
  virtual std::optional<LatentScaling> scaling() const { return std::nullopt; }
  virtual std::optional<std::uint32_t> channels() const { return std::nullopt; }
};

namespace {

namespace fs = std::filesystem;

constexpr double kEpsilon = 1e-6;  // of every group norm

// As folders of older versions of diffusers name it.
std::string older_name(std::string name) {
  constexpr std::pair<std::string_view, std::string_view> kNames[] = {
      {".to_q.", ".query."},
      {".to_k.", ".key."},
      {".to_v.", ".value."},
      {".to_out.0.", ".proj_attn."}};
  for (const auto& [now, before] : kNames) {
    if (const auto found = name.find(now); found != std::string::npos)
      return name.replace(found, now.size(), before);
  }
  return name;
}

class KlHalf final : public Autoencoder::Half {
 public:
  explicit KlHalf(AutoencoderHalf half) : half_(half) {}
  static Result<std::unique_ptr<Autoencoder::Half>> open(const std::string& folder,
                                                         AutoencoderHalf half,
                                                         torch::Device device) {
    auto opened = std::make_unique<KlHalf>(half);
    ASSIGN_OR_RETURN(opened->config_, read_autoencoder_config(folder));
    ASSIGN_OR_RETURN(const WeightFiles files, WeightFiles::open(folder, "diffusion_pytorch_model"));
    const bool encodes = half == AutoencoderHalf::kEncoder;
    for (const AutoencoderTensor& expected :
         encodes ? encoder_tensors(opened->config_) : decoder_tensors(opened->config_)) {
      const std::string older = older_name(expected.name);
      const std::string& name = files.contains(older) ? older : expected.name;
      ASSIGN_OR_RETURN(const storage::TensorView view, files.tensor(name, expected.shape));
      opened->weights_.emplace(expected.name, float_tensor(view).to(device));
    }
    return std::unique_ptr<Autoencoder::Half>(std::move(opened));
  }

  std::optional<LatentScaling> scaling() const override { return config_.scaling; }
  std::optional<std::uint32_t> channels() const override { return config_.latent_channels; }

  at::Tensor apply(const at::Tensor& in) override {
    return half_ == AutoencoderHalf::kEncoder ? encode(in) : decode(in);
  }

 private:
  at::Tensor encode(const at::Tensor& images) const {
    at::Tensor x = convolution("encoder.conv_in", images);
    for (std::size_t i = 0; i < config_.block_out_channels.size(); ++i) {
      const std::string block = text("encoder.down_blocks.", i);
      for (std::uint32_t layer = 0; layer < config_.layers_per_block; ++layer)
        x = residual(text(block, ".resnets.", layer), x);
      if (i + 1 == config_.block_out_channels.size()) break;
      x = halved(block + ".downsamplers.0.conv", x);
    }
    x = middle("encoder.mid_block", x);
    x = convolution("encoder.conv_out", at::silu(norm("encoder.conv_norm_out", x)));
    if (config_.use_quant_conv) x = convolution("quant_conv", x);
    return x.narrow(1, 0, config_.latent_channels);  // the means; log-variances follow
  }

  at::Tensor decode(const at::Tensor& latents) const {
    at::Tensor x = config_.use_post_quant_conv ? convolution("post_quant_conv", latents) : latents;
    x = convolution("decoder.conv_in", x);  // [n,c,s,s]
    x = middle("decoder.mid_block", x);
    for (std::size_t i = 0; i < config_.block_out_channels.size(); ++i) {
      const std::string block = text("decoder.up_blocks.", i);
      for (std::uint32_t layer = 0; layer <= config_.layers_per_block; ++layer)
        x = residual(text(block, ".resnets.", layer), x);
      if (i + 1 == config_.block_out_channels.size()) break;
      x = at::upsample_nearest2d(x, {2 * x.size(2), 2 * x.size(3)});
      x = convolution(block + ".upsamplers.0.conv", x);
    }
    return convolution("decoder.conv_out", at::silu(norm("decoder.conv_norm_out", x)));
  }

  const at::Tensor& weight(const std::string& name) const { return weights_.at(name); }

  // At the borders zeros: the image keeps its size.
  at::Tensor convolution(const std::string& name, const at::Tensor& x) const {
    const at::Tensor& kernel = weight(name + ".weight");
    return at::conv2d(x, kernel, weight(name + ".bias"), /*stride=*/1,
                      /*padding=*/kernel.size(2) / 2);
  }
  // Half as large; the zeros are at the right and the bottom alone.
  at::Tensor halved(const std::string& name, const at::Tensor& x) const {
    return at::conv2d(at::constant_pad_nd(x, {0, 1, 0, 1}), weight(name + ".weight"),
                      weight(name + ".bias"), /*stride=*/2);
  }
  at::Tensor norm(const std::string& name, const at::Tensor& x) const {
    return at::group_norm(x, config_.norm_num_groups, weight(name + ".weight"),
                          weight(name + ".bias"), kEpsilon);
  }
  at::Tensor linear(const std::string& name, const at::Tensor& x) const {
    return at::linear(x, weight(name + ".weight"), weight(name + ".bias"));
  }
  at::Tensor residual(const std::string& name, const at::Tensor& x) const {
    const at::Tensor inner = convolution(name + ".conv1", at::silu(norm(name + ".norm1", x)));
    const at::Tensor out = convolution(name + ".conv2", at::silu(norm(name + ".norm2", inner)));
    return (weights_.contains(name + ".conv_shortcut.weight")
                ? convolution(name + ".conv_shortcut", x)
                : x) +
           out;
  }
  at::Tensor middle(const std::string& name, at::Tensor x) const {
    x = residual(name + ".resnets.0", x);
    if (config_.mid_block_add_attention) x = attention(name + ".attentions.0", x);
    return residual(name + ".resnets.1", x);
  }
  // One head, over all places.
  at::Tensor attention(const std::string& name, const at::Tensor& x) const {
    const at::Tensor places =
        norm(name + ".group_norm", x).flatten(2).transpose(1, 2);  // [n,s·s,c]
    const at::Tensor mixed =
        at::scaled_dot_product_attention(linear(name + ".to_q", places).unsqueeze(1),
                                         linear(name + ".to_k", places).unsqueeze(1),
                                         linear(name + ".to_v", places).unsqueeze(1))
            .squeeze(1);
    return x + linear(name + ".to_out.0", mixed).transpose(1, 2).reshape(x.sizes());
  }

  AutoencoderHalf half_;
  AutoencoderConfig config_;
  std::map<std::string, at::Tensor> weights_;
};

class Script final : public Autoencoder::Half {
 public:
  Script(const std::string& path, torch::Device device) : module_(torch::jit::load(path, device)) {
    module_.eval();
  }
  at::Tensor apply(const at::Tensor& in) override {
    const c10::IValue answer = module_.forward({in});
    return answer.isTensor() ? answer.toTensor().to(at::kFloat) : at::Tensor();
  }

 private:
  torch::jit::Module module_;
};

Result<std::unique_ptr<Autoencoder::Half>> open_script(const std::string& path,
                                                       torch::Device device) try {
  return std::make_unique<Script>(path, device);
} catch (const std::exception& error) {
  const std::string_view why = error.what();
  return fail(ErrorCode::kCorrupt,
              text(path, ": expected TorchScript, or the folder of an AutoencoderKL: ",
                   why.substr(0, why.find('\n'))));
}

bool is_images(const at::Tensor& found) { return found.size(1) == 1 || found.size(1) == 3; }

bool is_latents(const at::Tensor& found) {
  return found.size(1) >= 1 && found.size(1) <= static_cast<std::int64_t>(kMaxLatentChannels);
}

struct Direction {
  const char* verb;
  const char* from;
  const char* to;
  bool (*is_right)(const at::Tensor& found);  // of [n,…,s,s]
};

// In parts, which halve where memory is short.
Result<at::Tensor> in_parts(Autoencoder::Half& half, const at::Tensor& in, const Direction& to) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> parts;
  std::int64_t rows = in.size(0);
  for (std::int64_t begin = 0; begin < in.size(0);) {
    const std::int64_t end = std::min(begin + rows, in.size(0));
    try {
      parts.push_back(half.apply(in.slice(0, begin, end)));
    } catch (
        const std::exception& error) {  // what TorchScript throws is of no type of LibTorch's own
      const bool is_full = is_out_of_memory(error);
      if (is_full && rows > 1) {
        rows = (rows + 1) / 2;
        continue;
      }
      return fail(is_full ? ErrorCode::kExhausted : ErrorCode::kInvalid,
                  text("the autoencoder cannot ", to.verb, ' ', to.from, ' ', in.sizes(), ": ",
                       error.what()));
    }
    const at::Tensor& part = parts.back();
    const bool is_right = part.defined() && part.dim() == 4 && part.size(0) == end - begin &&
                          part.size(2) == part.size(3) && part.size(2) > 0 && to.is_right(part);
    if (!is_right) {
      return fail(ErrorCode::kInvalid,
                  text("the autoencoder: expected ", end - begin, ' ', to.to, " of ", to.from, ' ',
                       in.sizes(), ", found ", part.defined() ? text(part.sizes()) : "no tensor"));
    }
    begin = end;
  }
  return at::cat(parts);
}

}  // namespace

Autoencoder::Autoencoder(std::unique_ptr<Half> half) : half_(std::move(half)) {}
Autoencoder::Autoencoder(Autoencoder&&) noexcept = default;
Autoencoder& Autoencoder::operator=(Autoencoder&&) noexcept = default;
Autoencoder::~Autoencoder() = default;

Result<Autoencoder> Autoencoder::open(const std::string& path, AutoencoderHalf half,
                                      torch::Device device) {
  std::error_code error;
  if (!fs::exists(path, error)) {
    return fail(
        ErrorCode::kNotFound,
        text(path,
             " is not there: expected the folder of an AutoencoderKL, or a file of TorchScript"));
  }
  return guarded([&]() -> Result<Autoencoder> {
    const at::NoGradGuard no_grad;
    ASSIGN_OR_RETURN(std::unique_ptr<Half> opened, fs::is_directory(path, error)
                                                       ? KlHalf::open(path, half, device)
                                                       : open_script(path, device));
    return Autoencoder(std::move(opened));
  });
}

std::optional<LatentScaling> Autoencoder::scaling() const { return half_->scaling(); }
std::optional<std::uint32_t> Autoencoder::channels() const { return half_->channels(); }

Result<at::Tensor> Autoencoder::decode(const at::Tensor& latents) const {
  return in_parts(*half_, latents, {"decode", "latents", "images [n,3,S,S]", is_images});
}

Result<at::Tensor> Autoencoder::encode(const at::Tensor& images) const {
  return in_parts(*half_, images, {"encode", "images", "latents [n,C,s,s]", is_latents});
}

}  // namespace skerry::diffusion
