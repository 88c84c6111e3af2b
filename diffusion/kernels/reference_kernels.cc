// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "diffusion/kernels/kernels.h"
#include "diffusion/kernels/product.h"

namespace skerry::diffusion {
namespace {

constexpr double kNormEpsilon = 1e-6;

class ReferenceKernels : public Kernels {
 public:
  std::string fingerprint() const override { return ""; }

  at::Tensor linear(const at::Tensor& input, const at::Tensor& weight,
                    const at::Tensor& bias) const override {
    return diffusion::linear(input, weight, bias);
  }

  at::Tensor linear_gelu(const at::Tensor& input, const at::Tensor& weight,
                         const at::Tensor& bias) const override {
    return at::gelu(linear(input, weight, bias), "tanh");
  }

  at::Tensor modulate(const at::Tensor& x, const at::Tensor& shift,
                      const at::Tensor& scale) const override {
    const auto normal = at::layer_norm(x, {x.size(-1)}, {}, {}, kNormEpsilon);
    return at::addcmul(shift, normal, scale + 1);
  }

  at::Tensor add_gated(const at::Tensor& x, const at::Tensor& y,
                       const at::Tensor& gate) const override {
    return at::addcmul(x, y, gate);
  }

  at::Tensor attention(const at::Tensor& input, const Projections& projections,
                       std::int64_t heads) const override {
    const std::int64_t batch = input.size(0), tokens = input.size(1);
    const std::int64_t width = projections.weights[0].size(0);
    const std::int64_t head = width / heads;
    const auto split = [&](std::size_t part) {
      return linear(input, projections.weights[part], projections.biases[part])
          .view({batch, tokens, heads, head})
          .transpose(1, 2)
          .reshape({batch * heads, tokens, head});
    };
    const auto query = split(0) * (1.0 / std::sqrt(static_cast<double>(head)));
    const auto key = split(1), value = split(2);
    const auto weights =
        at::softmax(diffusion::bmm(query, key.transpose(1, 2)), -1);  // [B·heads,T,T]
    const auto mixed =
        diffusion::bmm(weights, value).view({batch, heads, tokens, head}).transpose(1, 2);
    return mixed.reshape({batch, tokens, width});
  }
};

}  // namespace

std::pair<at::Tensor, at::Tensor> Kernels::keep_and_modulate(const at::Tensor& x,
                                                             const at::Tensor& shift,
                                                             const at::Tensor& scale) const {
  return {x, modulate(x, shift, scale)};
}

std::pair<at::Tensor, at::Tensor> Kernels::add_gated_and_modulate(const at::Tensor& x,
                                                                  const at::Tensor& y,
                                                                  const at::Tensor& gate,
                                                                  const at::Tensor& shift,
                                                                  const at::Tensor& scale) const {
  const at::Tensor sum = add_gated(x, y, gate);
  return {sum, modulate(sum, shift, scale)};
}

at::Tensor Kernels::cross_attention(const at::Tensor& input, const at::Tensor& context,
                                    const Projections& projections, std::int64_t heads,
                                    const at::Tensor& bias) const {
  const std::int64_t batch = input.size(0), tokens = input.size(1), others = context.size(1);
  const std::int64_t width = projections.weights[0].size(0), head = width / heads;
  const auto split = [&](const at::Tensor& from, std::size_t part) {
    return linear(from, projections.weights[part], projections.biases[part])
        .view({batch, from.size(1), heads, head})
        .transpose(1, 2)
        .reshape({batch * heads, from.size(1), head});
  };
  const auto query = split(input, 0) * (1.0 / std::sqrt(static_cast<double>(head)));
  const auto scores = diffusion::bmm(query, split(context, 1).transpose(1, 2))
                          .view({batch, heads, tokens, others}) +
                      bias.unsqueeze(1);
  const auto weights = at::softmax(scores, -1).view({batch * heads, tokens, others});
  return diffusion::bmm(weights, split(context, 2))
      .view({batch, heads, tokens, head})
      .transpose(1, 2)
      .reshape({batch, tokens, width});
}

std::shared_ptr<const Kernels> reference_kernels() { return std::make_shared<ReferenceKernels>(); }

}  // namespace skerry::diffusion
