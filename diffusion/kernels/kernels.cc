// SPDX-License-Identifier: Apache-2.0
#include "diffusion/kernels/kernels.h"

#include <ATen/detail/PrivateUse1HooksInterface.h>

#include <functional>
#include <vector>

#include "base/log.h"
#include "base/text.h"
#include "diffusion/runtime/device.h"

namespace skerry::diffusion {
namespace {

using torch::autograd::variable_list;

// Some part of a block by given kernels: operands in, results out.
using Part = std::function<variable_list(const Kernels&, const variable_list&)>;

// Numbers of both signs that repeat nowhere.
at::Tensor some_numbers(at::IntArrayRef shape, double phase, at::TensorOptions options) {
  const std::int64_t count = c10::multiply_integers(shape);
  return (at::arange(count, at::kDouble) * 0.7 + phase).sin().mul(1.5).view(shape).to(options);
}

// Equal up to the rounding of `found`, which is that of its type, and of fp32
// sums.
bool is_near(const at::Tensor& found, const at::Tensor& expected) {
  const double rounding = found.scalar_type() == at::kBFloat16 ? 0x1p-8 : 0;
  const at::Tensor allowed = expected.abs() * rounding + 2e-5 * (1 + expected.abs().max());
  return ((found.to(at::kFloat) - expected).abs() <= allowed).all().item<bool>();
}

// Forward, and backward under gradients that are not the same everywhere,
// against the reference in fp32.
Result<void> compare(const std::string& name, const Kernels& kernels, const variable_list& operands,
                     const Part& part) {
  variable_list wide;
  for (const at::Tensor& operand : operands)
    wide.push_back(operand.detach().to(at::kFloat).set_requires_grad(true));
  const variable_list found = part(kernels, operands), expected = part(*reference_kernels(), wide);
  variable_list slopes, wide_slopes;
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (!is_near(found[i], expected[i]))
      return fail(ErrorCode::kCorrupt, text(name, ": result ", i, " is wrong"));
    slopes.push_back(
        some_numbers(found[i].sizes(), 0.3 + static_cast<double>(i), found[i].options()));
    wide_slopes.push_back(slopes.back().to(at::kFloat));
  }
  const variable_list found_gradients = torch::autograd::grad(found, operands, slopes);
  const variable_list expected_gradients = torch::autograd::grad(expected, wide, wide_slopes);
  for (std::size_t i = 0; i < operands.size(); ++i) {
    if (!is_near(found_gradients[i], expected_gradients[i]))
      return fail(ErrorCode::kCorrupt, text(name, ": gradient ", i, " is wrong"));
  }
  return {};
}

Result<void> check_in(const Kernels& kernels, torch::Device device, at::ScalarType type,
                      std::int64_t width) {
  // More than one part of the rows that a block of a card sums over, and the
  // last part not whole.
  constexpr std::int64_t kSamples = 2, kTokens = 40;
  const auto make = [&](std::int64_t tokens, double phase, at::ScalarType as) {
    return some_numbers({kSamples, tokens, width}, phase, at::TensorOptions(device).dtype(as))
        .set_requires_grad(true);
  };
  const at::Tensor x = make(kTokens, 1, at::kFloat), y = make(kTokens, 2, type),
                   gate = make(1, 3, type), shift = make(1, 4, type), scale = make(1, 5, type);
  // Numbers that both types have.
  const at::Tensor bias = some_numbers({width}, 6, at::TensorOptions(device).dtype(at::kBFloat16))
                              .to(at::kFloat)
                              .set_requires_grad(true);
  const auto named = [&](const char* what) { return text(what, " in ", c10::toString(type)); };
  TRY(compare(named("modulate"), kernels, {x, shift, scale}, [](const Kernels& by, const auto& in) {
    return variable_list{by.modulate(in[0], in[1], in[2])};
  }));
  TRY(compare(named("keep_and_modulate"), kernels, {x, shift, scale},
              [](const Kernels& by, const auto& in) {
                const auto both = by.keep_and_modulate(in[0], in[1], in[2]);
                return variable_list{both.first, both.second};
              }));
  TRY(compare(named("add_gated"), kernels, {x, y, gate}, [](const Kernels& by, const auto& in) {
    return variable_list{by.add_gated(in[0], in[1], in[2])};
  }));
  TRY(compare(named("add_gated_and_modulate"), kernels, {x, y, gate, shift, scale},
              [](const Kernels& by, const auto& in) {
                const auto both = by.add_gated_and_modulate(in[0], in[1], in[2], in[3], in[4]);
                return variable_list{both.first, both.second};
              }));
  // By the identity: a product by it is exact, and what remains is the sum with
  // the bias and its GELU.
  return compare(named("linear_gelu"), kernels, {y, bias}, [](const Kernels& by, const auto& in) {
    const at::Tensor identity = at::eye(in[1].size(0), in[0].options());
    return variable_list{by.linear_gelu(in[0], identity, in[1])};
  });
}

// The maker of a device that is not CUDA's; nullptr: it has no kernels.
const CardMaker* maker_of(torch::Device device) {
  if (!device.is_privateuseone()) return nullptr;
  return dynamic_cast<const CardMaker*>(&at::detail::getPrivateUse1Hooks());
}

}  // namespace

Result<void> check_against_reference(const Kernels& kernels, torch::Device device,
                                     std::int64_t width, const std::vector<at::ScalarType>& types) {
  const c10::InferenceMode no_inference(false);
  const at::AutoGradMode with_gradients(true);
  return guarded([&]() -> Result<void> {
    for (const at::ScalarType type : types) TRY(check_in(kernels, device, type, width));
    return {};
  });
}

std::shared_ptr<const Kernels> make_kernels(KernelChoice choice, torch::Device device,
                                            const ModelSpec& model) {
  if (choice == KernelChoice::kReference) return reference_kernels();
  if (device.is_cpu()) return cpu_kernels();
  const CardMaker* const maker = maker_of(device);
  if ((!device.is_cuda() && maker == nullptr) || !card_kernels_serve(model))
    return reference_kernels();
  constexpr std::int64_t kCheckedWidth = 1160;  // fills neither a last warp nor a last column
  const auto checked = [&]() -> Result<std::shared_ptr<const Kernels>> {
    std::shared_ptr<Card> card;
    if (maker != nullptr) {
      card = maker->make_card(device.index());
    } else {
      ASSIGN_OR_RETURN(card, open_card(device.index()));
    }
    std::shared_ptr<const Kernels> kernels = cuda_kernels(std::move(card));
    TRY(check_against_reference(*kernels, device, kCheckedWidth));
    return kernels;
  }();
  if (checked) return *checked;
  log_warning("no kernels of our own on this card: the reference is computed, which is slower",
              {{"device", device_name(device)}, {"reason", checked.error().message}});
  return reference_kernels();
}

}  // namespace skerry::diffusion
