// SPDX-License-Identifier: Apache-2.0
#include "diffusion/kernels/product.h"

#include <ATen/Version.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>

namespace skerry::diffusion {
namespace {

using PointwiseLinear = at::Tensor(const at::Tensor&, const at::Tensor&,
                                   const std::optional<at::Tensor>&, c10::string_view,
                                   c10::List<std::optional<at::Scalar>>,
                                   std::optional<c10::string_view>);

std::optional<c10::TypedOperatorHandle<PointwiseLinear>> find_one_dnn() {
  const auto found = c10::Dispatcher::singleton().findSchema({"mkldnn::_linear_pointwise", ""});
  if (!at::globalContext().hasMKLDNN() || !found) return std::nullopt;
  return found->typed<PointwiseLinear>();
}

const std::optional<c10::TypedOperatorHandle<PointwiseLinear>>& one_dnn() {
  static const auto found = find_one_dnn();
  return found;
}

bool ask_for_bf16() {
  const auto found =
      c10::Dispatcher::singleton().findSchema({"mkldnn::_is_mkldnn_bf16_supported", ""});
  return at::globalContext().hasMKLDNN() && found && found->typed<bool()>().call();
}

bool has_avx512() {
  static const bool found = at::get_cpu_capability().starts_with("AVX512");
  return found;
}

// Autocast to bf16 on a CPU that cannot multiply it.
bool rounds(const at::Tensor& input) {
  return input.is_cpu() && at::autocast::is_autocast_enabled(at::kCPU) && !cpu_multiplies_bf16();
}

// input [n, in] · weight [out, in]ᵀ + bias.
at::Tensor product(const at::Tensor& input, const at::Tensor& weight,
                   const std::optional<at::Tensor>& bias) {
  if (input.scalar_type() == at::kBFloat16) {
    const auto wide_bias = bias ? std::optional(bias->to(at::kFloat)) : std::nullopt;
    return product(input.to(at::kFloat), weight.to(at::kFloat), wide_bias).to(at::kBFloat16);
  }
  return one_dnn()->call(input, weight, bias, "none", c10::List<std::optional<at::Scalar>>(), "");
}

struct OneDnnLinear : torch::autograd::Function<OneDnnLinear> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& rows,
                            const at::Tensor& weight, const at::Tensor& bias, bool weights_by_mkl) {
    context->save_for_backward({rows, weight});
    context->saved_data["by_mkl"] = weights_by_mkl;
    return product(rows, weight, bias);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor gradient = gradients[0].contiguous();  // [n, out]
    at::Tensor for_rows;
    if (context->needs_input_grad(0)) for_rows = product(gradient, saved[1].t(), std::nullopt);
    const bool by_mkl = context->saved_data["by_mkl"].toBool();
    return {for_rows, for_weight(saved[0], gradient, by_mkl), gradient.sum(0), at::Tensor()};
  }

 private:
  static at::Tensor for_weight(const at::Tensor& rows, const at::Tensor& gradient, bool by_mkl) {
    if (by_mkl) {
      return at::mm(gradient.to(at::kFloat).t(), rows.to(at::kFloat))
          .to(rows.scalar_type());  // [out, in]
    }
    // inputᵀ · gradient is [in, out]: oneDNN is faster at this than at its
    // transpose.
    return product(rows.t(), gradient.t(), std::nullopt).t().contiguous();
  }
};

}  // namespace

at::Tensor linear(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                  WeightGradient gradient) {
  if (!input.is_cpu() || !one_dnn() || multiplies_bf16_now())
    return at::linear(input, weight, bias);
  std::vector<std::int64_t> shape(input.sizes().begin(), input.sizes().end());
  shape.back() = weight.size(0);
  const auto type = rounds(input) ? at::kBFloat16 : input.scalar_type();
  return OneDnnLinear::apply(input.reshape({-1, input.size(-1)}).to(type), weight.to(type),
                             bias.to(type), gradient == WeightGradient::kFastest && !has_avx512())
      .view(shape);
}

at::Tensor bmm(const at::Tensor& left, const at::Tensor& right) {
  if (!rounds(left)) return at::bmm(left, right);
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(at::autocast_dispatch_keyset);
  const auto rounded = [](const at::Tensor& operand) {
    return operand.to(at::kBFloat16).to(at::kFloat);
  };
  return at::bmm(rounded(left), rounded(right)).to(at::kBFloat16);
}

at::ScalarType type_of_product(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kBFloat16 ? at::kBFloat16 : at::kFloat;
}

const char* cpu_linear_name() { return one_dnn() ? "oneDNN" : "MKL"; }

bool cpu_multiplies_bf16() {
  static const bool found = ask_for_bf16();
  return found;
}

bool multiplies_bf16_now() {
  return at::autocast::is_autocast_enabled(at::kCPU) && cpu_multiplies_bf16();
}

}  // namespace skerry::diffusion
