#include "diffusion/card_fused.h"

#include <algorithm>
#include <functional>
#include <map>
#include <mutex>

#include "base/log.h"
#include "base/text.h"
#include "diffusion/device.h"
#include "diffusion/product.h"

namespace skerry::diffusion::card {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int kColumns = 8;        // of a row that a thread holds, as card_kernels.cu has it
constexpr int kTogether = 16;      // rows that one block sums over
constexpr int kGeluTogether = 64;  // likewise; its threads do not wait for each other
constexpr unsigned kGeluThreads = 256;
constexpr unsigned kMostRows = 65535;  // of a grid

unsigned parts_of(std::int64_t whole, std::int64_t part) {
  return static_cast<unsigned>((whole + part - 1) / part);
}

// Of a block that holds a row.
unsigned threads_for(std::int64_t width) { return parts_of(width, kColumns * 32) * 32; }

// Launches with any number of arguments; a tensor stands for where its numbers begin.
template <class Argument>
Argument raw(const Argument& argument) {
  return argument;
}
inline void* raw(const at::Tensor& tensor) { return tensor.data_ptr(); }

template <class... Arguments>
void launch(Card& card, const char* kernel, at::ScalarType type, Card::Grid grid,
            const Arguments&... arguments) {
  auto values = std::make_tuple(raw(arguments)...);
  std::apply(
      [&](auto&... each) {
        void* pointers[] = {static_cast<void*>(&each)...};
        card.launch(text(kernel, type == at::kBFloat16 ? "_bf16" : "_float"), grid, pointers);
      },
      values);
}

// Parameters of each sample, [B,1,W], with as many numbers from a sample to the next in each. Parts of a wider row are taken
// where they lie.
variable_list of_samples(variable_list parameters, at::ScalarType type) {
  for (at::Tensor& parameter : parameters) parameter = parameter.to(type);
  const bool alike = std::all_of(parameters.begin(), parameters.end(), [&](const at::Tensor& parameter) {
    return parameter.stride(2) == 1 && parameter.stride(0) == parameters[0].stride(0);
  });
  if (!alike) {
    for (at::Tensor& parameter : parameters) parameter = parameter.contiguous();
  }
  return parameters;
}

struct Size {
  explicit Size(const at::Tensor& x)
      : samples(x.size(0)),
        tokens(static_cast<int>(x.size(1))),
        width(static_cast<int>(x.size(2))),
        threads(threads_for(width)) {}
  Card::Grid each_row() const { return {static_cast<unsigned>(samples * tokens), 1, threads}; }
  Card::Grid each_part() const { return {static_cast<unsigned>(samples), parts(), threads}; }
  unsigned parts() const { return parts_of(tokens, kTogether); }
  std::int64_t samples;
  int tokens, width;
  unsigned threads;
};

Card& card_in(AutogradContext* context) {
  return *reinterpret_cast<Card*>(context->saved_data["card"].toInt());
}
void keep(AutogradContext* context, Card& card) {
  context->saved_data["card"] = reinterpret_cast<std::int64_t>(&card);
}

// A sum over parts [B,parts,n,W] as gradients [B,1,W] of n parameters.
variable_list gradients_of(const at::Tensor& parts, at::ScalarType type) {
  variable_list gradients;
  for (const at::Tensor& each : parts.sum(1).to(type).unbind(1)) gradients.push_back(each.unsqueeze(1));
  return gradients;
}

struct Modulate : torch::autograd::Function<Modulate> {
  static at::Tensor forward(AutogradContext* context, Card& card, const at::Tensor& x,
                            const at::Tensor& shift, const at::Tensor& scale) {
    const Size size(x);
    const at::Tensor out = at::empty(x.sizes(), shift.options());
    const at::Tensor moments = at::empty({size.samples, size.tokens, 2}, x.options());
    launch(card, "modulate", shift.scalar_type(), size.each_row(), size.tokens, size.width,
           static_cast<long long>(shift.stride(0)), x, shift, scale, out, moments);
    context->save_for_backward({x, scale, moments});
    keep(context, card);
    return out;
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &scale = saved[1], &moments = saved[2];
    const Size size(x);
    const at::Tensor gradient = gradients[0].contiguous(), for_x = at::empty_like(x);
    const at::Tensor parts = at::empty({size.samples, size.parts(), 2, size.width}, x.options());
    launch(card_in(context), "modulate_backward", scale.scalar_type(), size.each_part(), size.tokens,
           size.width, kTogether, static_cast<long long>(scale.stride(0)), gradient, x, moments, scale, for_x,
           parts);
    const variable_list found = gradients_of(parts, scale.scalar_type());
    return {at::Tensor(), for_x, found[0], found[1]};
  }
};

struct GatedModulate : torch::autograd::Function<GatedModulate> {
  static variable_list forward(AutogradContext* context, Card& card, const at::Tensor& x, const at::Tensor& y,
                               const at::Tensor& gate, const at::Tensor& shift, const at::Tensor& scale) {
    const Size size(x);
    const at::Tensor summed = at::empty_like(x), out = at::empty(x.sizes(), shift.options());
    const at::Tensor moments = at::empty({size.samples, size.tokens, 2}, x.options());
    launch(card, "gated_modulate", shift.scalar_type(), size.each_row(), size.tokens, size.width,
           static_cast<long long>(shift.stride(0)), x, y, gate, shift, scale, summed, out, moments);
    context->save_for_backward({summed, y, gate, scale, moments});
    keep(context, card);
    return {summed, out};
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &summed = saved[0], &y = saved[1], &gate = saved[2], &scale = saved[3],
                     &moments = saved[4];
    const Size size(summed);
    const at::Tensor of_summed = gradients[0].contiguous(), gradient = gradients[1].contiguous();
    const at::Tensor for_x = at::empty_like(summed), for_y = at::empty_like(y);
    const at::Tensor parts = at::empty({size.samples, size.parts(), 3, size.width}, summed.options());
    launch(card_in(context), "gated_modulate_backward", scale.scalar_type(), size.each_part(), size.tokens,
           size.width, kTogether, static_cast<long long>(scale.stride(0)), gradient, of_summed, summed,
           moments, scale, y, gate, for_x, for_y, parts);
    const variable_list found = gradients_of(parts, scale.scalar_type());
    return {at::Tensor(), for_x, for_y, found[2], found[0], found[1]};
  }
};

struct AddGated : torch::autograd::Function<AddGated> {
  static at::Tensor forward(AutogradContext* context, Card& card, const at::Tensor& x, const at::Tensor& y,
                            const at::Tensor& gate) {
    const Size size(x);
    const at::Tensor out = at::empty_like(x);
    constexpr unsigned kThreads = 256;
    const std::int64_t fours = std::int64_t{size.tokens} * size.width / 4;
    launch(card, "add_gated", gate.scalar_type(),
           {static_cast<unsigned>(size.samples), std::min(kMostRows, parts_of(fours, kThreads)), kThreads},
           size.tokens, size.width, static_cast<long long>(gate.stride(0)), x, y, gate, out);
    context->save_for_backward({y, gate});
    keep(context, card);
    return out;
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &y = saved[0], &gate = saved[1];
    const Size size(y);
    const at::Tensor gradient = gradients[0].contiguous(), for_y = at::empty_like(y);
    const at::Tensor parts = at::empty({size.samples, size.parts(), 1, size.width}, gradient.options());
    launch(card_in(context), "add_gated_backward", gate.scalar_type(), size.each_part(), size.tokens,
           size.width, kTogether, static_cast<long long>(gate.stride(0)), gradient, y, gate, for_y, parts);
    return {at::Tensor(), gradient, for_y, gradients_of(parts, gate.scalar_type())[0]};
  }
};

struct BiasGelu : torch::autograd::Function<BiasGelu> {
  static at::Tensor forward(AutogradContext* context, Card& card, const at::Tensor& x,
                            const at::Tensor& bias) {
    const at::Tensor out = at::empty_like(x);
    launch(card, "bias_gelu", x.scalar_type(), grid_of(x), rows_of(x), static_cast<int>(bias.size(0)),
           kGeluTogether, x, bias, out);
    context->save_for_backward({x, bias});
    keep(context, card);
    return out;
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &bias = saved[1];
    const at::Tensor gradient = gradients[0].contiguous(), for_x = at::empty_like(x);
    const Card::Grid grid = grid_of(x);
    const at::Tensor parts = at::empty({grid.columns, bias.size(0)}, bias.options());
    launch(card_in(context), "bias_gelu_backward", x.scalar_type(), grid, rows_of(x),
           static_cast<int>(bias.size(0)), kGeluTogether, gradient, x, bias, for_x, parts);
    return {at::Tensor(), for_x, parts.sum(0)};
  }

 private:
  static long long rows_of(const at::Tensor& x) { return x.numel() / x.size(-1); }
  static Card::Grid grid_of(const at::Tensor& x) {
    return {parts_of(rows_of(x), kGeluTogether), parts_of(x.size(-1) / 4, kGeluThreads), kGeluThreads};
  }
};

}  // namespace

at::Tensor modulate(Card& card, const at::Tensor& x, const at::Tensor& shift, const at::Tensor& scale) {
  const variable_list in = of_samples({shift, scale}, type_of_product(shift));
  return Modulate::apply(card, x.to(at::kFloat).contiguous(), in[0], in[1]);
}

at::Tensor add_gated(Card& card, const at::Tensor& x, const at::Tensor& y, const at::Tensor& gate) {
  const at::ScalarType type = type_of_product(y);
  return AddGated::apply(card, x.to(at::kFloat).contiguous(), y.to(type).contiguous(),
                         of_samples({gate}, type)[0]);
}

std::pair<at::Tensor, at::Tensor> add_gated_and_modulate(Card& card, const at::Tensor& x, const at::Tensor& y,
                                                         const at::Tensor& gate, const at::Tensor& shift,
                                                         const at::Tensor& scale) {
  const at::ScalarType type = type_of_product(y);
  const variable_list in = of_samples({gate, shift, scale}, type);
  const auto both =
      GatedModulate::apply(card, x.to(at::kFloat).contiguous(), y.to(type).contiguous(), in[0], in[1], in[2]);
  return {both[0], both[1]};
}

at::Tensor bias_gelu(Card& card, const at::Tensor& x, const at::Tensor& bias) {
  return BiasGelu::apply(card, x.to(type_of_product(x)).contiguous(), bias.to(at::kFloat).contiguous());
}

at::Tensor attention(const at::Tensor& rows, std::int64_t heads) {
  const std::int64_t batch = rows.size(0), tokens = rows.size(1), width = rows.size(2) / 3;
  const auto parts = rows.view({batch, tokens, 3, heads, width / heads}).permute({2, 0, 3, 1, 4}).unbind(0);
  return at::scaled_dot_product_attention(parts[0], parts[1], parts[2])
      .transpose(1, 2)
      .reshape({batch, tokens, width});
}

namespace {

using Part = std::function<variable_list(const variable_list&)>;

// Numbers of both signs that repeat nowhere.
at::Tensor some_numbers(at::IntArrayRef shape, double phase, at::TensorOptions options) {
  const std::int64_t count = c10::multiply_integers(shape);
  return (at::arange(count, at::kDouble) * 0.7 + phase).sin().mul(1.5).view(shape).to(options);
}

// Equal up to the rounding of `found`, which is that of its type, and of fp32 sums.
bool is_near(const at::Tensor& found, const at::Tensor& expected) {
  const double rounding = found.scalar_type() == at::kBFloat16 ? 0x1p-8 : 0;
  const at::Tensor allowed = expected.abs() * rounding + 2e-5 * (1 + expected.abs().max());
  return ((found.to(at::kFloat) - expected).abs() <= allowed).all().item<bool>();
}

// Forward, and backward under gradients that are not the same everywhere, against the same in fp32 by LibTorch.
Result<void> compare(const std::string& name, const variable_list& operands, const Part& ours,
                     const Part& composed) {
  variable_list wide;
  for (const at::Tensor& operand : operands) {
    wide.push_back(operand.detach().to(at::kFloat).set_requires_grad(true));
  }
  const variable_list found = ours(operands), expected = composed(wide);
  variable_list slopes, wide_slopes;
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (!is_near(found[i], expected[i]))
      return fail(ErrorCode::kCorrupt, text(name, ": result ", i, " is wrong"));
    slopes.push_back(some_numbers(found[i].sizes(), 0.3 + static_cast<double>(i), found[i].options()));
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

at::Tensor composed_modulate(const at::Tensor& x, const at::Tensor& shift, const at::Tensor& scale) {
  return at::layer_norm(x, {x.size(-1)}, {}, {}, 1e-6) * (1 + scale) + shift;
}

Result<void> check_all(Card& card, torch::Device device, at::ScalarType type, std::int64_t width) {
  // More than one part of rows, and the last not whole, by kTogether and by kGeluTogether.
  constexpr std::int64_t kSamples = 2, kTokens = 40;
  const auto make = [&](std::int64_t tokens, double phase, at::ScalarType as) {
    return some_numbers({kSamples, tokens, width}, phase, at::TensorOptions(device).dtype(as))
        .set_requires_grad(true);
  };
  const at::Tensor x = make(kTokens, 1, at::kFloat), y = make(kTokens, 2, type), gate = make(1, 3, type),
                   shift = make(1, 4, type), scale = make(1, 5, type);
  const at::Tensor bias =
      some_numbers({width}, 6, at::TensorOptions(device).dtype(at::kFloat)).set_requires_grad(true);
  const auto named = [&](const char* what) { return text(what, " in ", c10::toString(type)); };
  TRY(compare(
      named("modulate"), {x, shift, scale},
      [&](const auto& in) { return variable_list{modulate(card, in[0], in[1], in[2])}; },
      [](const auto& in) { return variable_list{composed_modulate(in[0], in[1], in[2])}; }));
  TRY(compare(
      named("add_gated"), {x, y, gate},
      [&](const auto& in) { return variable_list{add_gated(card, in[0], in[1], in[2])}; },
      [](const auto& in) { return variable_list{in[0] + in[1] * in[2]}; }));
  TRY(compare(
      named("add_gated_and_modulate"), {x, y, gate, shift, scale},
      [&](const auto& in) {
        const auto both = add_gated_and_modulate(card, in[0], in[1], in[2], in[3], in[4]);
        return variable_list{both.first, both.second};
      },
      [](const auto& in) {
        const at::Tensor sum = in[0] + in[1] * in[2];
        return variable_list{sum, composed_modulate(sum, in[3], in[4])};
      }));
  return compare(
      named("bias_gelu"), {y, bias},
      [&](const auto& in) { return variable_list{bias_gelu(card, in[0], in[1])}; },
      [](const auto& in) { return variable_list{at::gelu(in[0] + in[1], "tanh")}; });
}

}  // namespace

Result<void> check(Card& card, torch::Device device, std::int64_t width) {
  const c10::InferenceMode no_inference(false);
  const at::AutoGradMode with_gradients(true);
  return guarded([&]() -> Result<void> {
    TRY(check_all(card, device, at::kFloat, width));
    return check_all(card, device, at::kBFloat16, width);
  });
}

namespace {

std::unique_ptr<Card> open_checked(torch::Device device) {
  Result<std::unique_ptr<Card>> card = open_card(device.index());
  const Result<void> checked = card ? check(**card, device, /*width=*/1160) : Result<void>(card.error());
  if (checked) return std::move(*card);
  log_warning("no kernels of our own on this card: the reference is computed, which is slower",
              {{"device", device_name(device)}, {"reason", checked.error().message}});
  return nullptr;
}

}  // namespace

Card* of(torch::Device device, const ModelSpec& model) {
  static std::mutex mutex;
  static std::map<c10::DeviceIndex, std::unique_ptr<Card>> cards;
  if (!device.is_cuda() || !serves(model)) return nullptr;
  const std::scoped_lock lock(mutex);
  const auto [place, is_new] = cards.try_emplace(device.index());
  if (is_new) place->second = open_checked(device);
  return place->second.get();
}

}  // namespace skerry::diffusion::card
