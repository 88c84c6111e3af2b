// SPDX-License-Identifier: Apache-2.0
#include "diffusion/model/text_encoder.h"

#include <torch/torch.h>

#include <cmath>
#include <map>

#include "base/text.h"
#include "diffusion/model/weight_tensor.h"
#include "diffusion/runtime/device.h"
#include "storage/files.h"

namespace skerry::diffusion {
namespace {

class T5 final : public TextEncoder {
 public:
  T5(const TextEncoderConfig& config, torch::Device device) : config_(config), device_(device) {}

  // RETURNS: a hash of all that is read.
  Result<Hash> read(const TextEncoderFiles& files) {
    Hasher hasher;
    for (const TextEncoderTensor& tensor : text_encoder_tensors(config_)) {
      ASSIGN_OR_RETURN(const storage::TensorView view, files.tensor(tensor));
      const at::Tensor whole = float_tensor(view);
      hasher.update(text(tensor.name, ' ', whole.sizes()));
      hasher.update({static_cast<const char*>(whole.const_data_ptr()), whole.nbytes()});
      weights_.emplace(tensor.name, whole.to(device_, type()));
    }
    hasher.update(text(config_.relative_attention_max_distance, ' ', config_.layer_norm_epsilon));
    ASSIGN_OR_RETURN(const auto tokenizer, storage::MappedFile::open(files.tokenizer));
    hasher.update(blake2b(tokenizer.bytes()).view());
    return hasher.finish();
  }

  std::uint64_t dim() const override { return static_cast<std::uint64_t>(config_.d_model); }

  Result<std::vector<float>> encode(std::span<const std::int32_t> ids,
                                    std::size_t captions) override {
    for (const std::int32_t id : ids) {
      if (id < 0 || id >= config_.vocab_size) {
        return fail(ErrorCode::kInvalid,
                    text("expected tokens below ", config_.vocab_size, ", found ", id,
                         ": the tokenizer is not that of this encoder"));
      }
    }
    return guarded([&]() -> Result<std::vector<float>> {
      const at::NoGradGuard no_grad;
      const auto n = static_cast<std::int64_t>(captions);
      const at::Tensor tokens =  // [n,L]
          at::from_blob(const_cast<std::int32_t*>(ids.data()),
                        {n, static_cast<std::int64_t>(ids.size()) / n}, at::kInt)
              .to(device_, at::kLong);
      const at::Tensor x = forward(tokens).to(at::kFloat).cpu().contiguous();
      const float* const values = x.const_data_ptr<float>();
      return std::vector<float>(values, values + x.numel());
    });
  }

 private:
  at::ScalarType type() const { return device_.is_cpu() ? at::kFloat : at::kBFloat16; }
  const at::Tensor& weight(const std::string& name) const { return weights_.at(name + ".weight"); }

  at::Tensor forward(const at::Tensor& tokens) const {
    at::Tensor x = at::embedding(weight("shared"), tokens);  // [n,L,d]
    const at::Tensor bias = bias_for(tokens.size(1));
    for (std::int64_t i = 0; i < config_.num_layers; ++i) {
      const std::string block = text("encoder.block.", i, ".layer.");
      x = x + attention(block + "0.SelfAttention.", norm(block + "0.layer_norm", x), bias);
      x = x + feed_forward(block + "1.DenseReluDense.", norm(block + "1.layer_norm", x));
    }
    return norm("encoder.final_layer_norm", x);
  }

  // By the root of the mean square, in fp32, without a mean or a bias.
  at::Tensor norm(const std::string& name, const at::Tensor& x) const {
    const at::Tensor wide = x.to(at::kFloat);
    const at::Tensor scale =
        at::rsqrt(wide.square().mean(-1, /*keepdim=*/true) + config_.layer_norm_epsilon);
    return weight(name) * (wide * scale).to(type());
  }

  // The bucket of each distance key − query, as [L,L]. Keys behind the query
  // have the second half. In each half the first half is exact; the rest grows
  // with the logarithm.
  at::Tensor buckets_for(std::int64_t length) const {
    const std::int64_t half = config_.relative_attention_num_buckets / 2, exact = half / 2;
    const at::Tensor places = at::arange(length, at::kLong);
    const at::Tensor distance = places.unsqueeze(0) - places.unsqueeze(1);
    const at::Tensor far = distance.abs();
    const double span = std::log(static_cast<double>(config_.relative_attention_max_distance) /
                                 static_cast<double>(exact));
    const at::Tensor large =
        exact + (at::log(far.to(at::kFloat) / exact) / span * (half - exact)).to(at::kLong);
    return (distance > 0).to(at::kLong) * half +
           at::where(far < exact, far, large.clamp_max(half - 1));
  }
  at::Tensor bias_for(std::int64_t length) const {  // [1,H,L,L], of every block
    const at::Tensor& table =
        weight("encoder.block.0.layer.0.SelfAttention.relative_attention_bias");
    return at::embedding(table, buckets_for(length).to(device_))
        .permute({2, 0, 1})
        .unsqueeze(0)
        .contiguous();
  }

  at::Tensor attention(const std::string& name, const at::Tensor& x, const at::Tensor& bias) const {
    const auto heads = [&](const char* part) {  // [n,H,L,d_kv]
      return at::linear(x, weight(name + part))
          .unflatten(2, {config_.num_heads, config_.d_kv})
          .transpose(1, 2);
    };
    const at::Tensor mixed = at::scaled_dot_product_attention(
        heads("q"), heads("k"), heads("v"), bias, /*dropout_p=*/0, /*is_causal=*/false,
        /*scale=*/1.0);  // T5 does not divide by √d_kv
    return at::linear(mixed.transpose(1, 2).flatten(2), weight(name + "o"));
  }

  at::Tensor feed_forward(const std::string& name, const at::Tensor& x) const {
    if (!config_.is_gated)
      return at::linear(at::relu(at::linear(x, weight(name + "wi"))), weight(name + "wo"));
    const at::Tensor gate = at::gelu(at::linear(x, weight(name + "wi_0")), "tanh");
    return at::linear(gate * at::linear(x, weight(name + "wi_1")), weight(name + "wo"));
  }

  TextEncoderConfig config_;
  torch::Device device_;
  std::map<std::string, at::Tensor> weights_;
};

}  // namespace

Result<OpenedTextEncoder> open_text_encoder(const TextEncoderFiles& files, int device,
                                            std::uint32_t threads) {
  ASSIGN_OR_RETURN(const torch::Device opened, open_device(device, threads));
  return guarded([&]() -> Result<OpenedTextEncoder> {
    const at::NoGradGuard no_grad;
    auto encoder = std::make_unique<T5>(files.config, opened);
    ASSIGN_OR_RETURN(const Hash identity, encoder->read(files));
    return OpenedTextEncoder{std::move(encoder), identity};
  });
}

}  // namespace skerry::diffusion
