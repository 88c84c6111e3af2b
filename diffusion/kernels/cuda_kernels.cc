// SPDX-License-Identifier: Apache-2.0
#include <ATen/autocast_mode.h>

#include <algorithm>

#include "base/text.h"
#include "diffusion/kernels/fast_generation.h"
#include "diffusion/kernels/kernels.h"
#include "diffusion/kernels/product.h"
#include "diffusion/runtime/device.h"

namespace skerry::diffusion {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int kColumns = 8;        // of a row that a thread holds: two groups of four
constexpr int kTogether = 16;      // rows that one block sums over
constexpr int kGeluTogether = 64;  // likewise; its threads do not wait for each other
constexpr unsigned kGeluThreads = 256;
constexpr unsigned kMostRows = 65535;  // of a grid

unsigned parts_of(std::int64_t whole, std::int64_t part) {
  return static_cast<unsigned>((whole + part - 1) / part);
}

// Of a block that holds a row.
unsigned threads_for(std::int64_t width) { return parts_of(width, kColumns * 32) * 32; }

// Launches with any number of arguments; a tensor stands for where its numbers
// begin.
template <class Argument>
Argument raw(const Argument& argument) {
  return argument;
}
inline void* raw(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.data_ptr() : nullptr;
}

// A card held by an autograd node: the backward pass may run after every other
// holder of the card is gone.
struct Held : torch::CustomClassHolder {
  explicit Held(std::shared_ptr<Card> held) : card(std::move(held)) {}
  std::shared_ptr<Card> card;
};
using CardPtr = c10::intrusive_ptr<Held>;

CardPtr card_in(AutogradContext* context) {
  return c10::static_intrusive_pointer_cast<Held>(context->saved_data["card"].toCapsule());
}
void keep(AutogradContext* context, const CardPtr& card) {
  context->saved_data["card"] = c10::IValue::make_capsule(card);
}

// On the current stream of the device of `like`, whose type the kernel is of.
template <class... Arguments>
void launch(const CardPtr& card, const char* kernel, const at::Tensor& like, Card::Grid grid,
            const Arguments&... arguments) {
  auto values = std::make_tuple(raw(arguments)...);
  std::apply(
      [&](auto&... each) {
        void* pointers[] = {static_cast<void*>(&each)...};
        card->card->launch(text(kernel, like.scalar_type() == at::kBFloat16 ? "_bf16" : "_float"),
                           grid, current_stream(like.device()), pointers);
      },
      values);
}

// Parameters of each sample, [B,1,W], with as many numbers from a sample to the
// next in each, where four at a time can be read. Parts of a wider row stay
// where they lie.
variable_list of_samples(variable_list parameters, at::ScalarType type) {
  for (at::Tensor& parameter : parameters) parameter = parameter.to(type);
  const bool alike =
      std::all_of(parameters.begin(), parameters.end(), [&](const at::Tensor& parameter) {
        return parameter.stride(2) == 1 && parameter.stride(0) == parameters[0].stride(0) &&
               parameter.stride(0) % 4 == 0 && parameter.storage_offset() % 4 == 0;
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

// A sum over parts [B,parts,n,W] as gradients [B,1,W] of n parameters.
variable_list gradients_of(const CardPtr& card, const at::Tensor& parts, at::ScalarType type) {
  constexpr unsigned kThreads = 128;
  const at::Tensor sums =
      at::empty({parts.size(0), parts.size(2), parts.size(3)}, parts.options().dtype(type));
  const int columns = static_cast<int>(parts.size(2) * parts.size(3));
  launch(card, "sum_parts", sums,
         {static_cast<unsigned>(parts.size(0)), parts_of(columns / 4, kThreads), kThreads},
         static_cast<int>(parts.size(1)), columns, parts, sums);
  variable_list gradients;
  for (const at::Tensor& each : sums.unbind(1)) gradients.push_back(each.unsqueeze(1));
  return gradients;
}

// x too: so its gradient from elsewhere is added in the same pass.
struct Modulate : torch::autograd::Function<Modulate> {
  static variable_list forward(AutogradContext* context, const CardPtr& card, const at::Tensor& x,
                               const at::Tensor& shift, const at::Tensor& scale) {
    const Size size(x);
    const at::Tensor out = at::empty(x.sizes(), shift.options());
    const at::Tensor moments = at::empty({size.samples, size.tokens, 2}, x.options());
    launch(card, "modulate", shift, size.each_row(), size.tokens, size.width,
           static_cast<long long>(shift.stride(0)), x, shift, scale, out, moments);
    context->save_for_backward({x, scale, moments});
    context->set_materialize_grads(false);
    keep(context, card);
    return {x, out};
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &scale = saved[1], &moments = saved[2];
    if (!gradients[1].defined()) return {at::Tensor(), gradients[0], at::Tensor(), at::Tensor()};
    const Size size(x);
    const at::Tensor gradient = gradients[1].contiguous(), for_x = at::empty_like(x);
    const at::Tensor of_x = gradients[0].defined() ? gradients[0].contiguous() : at::Tensor();
    const at::Tensor parts = at::empty({size.samples, size.parts(), 2, size.width}, x.options());
    launch(card_in(context), "modulate_backward", scale, size.each_part(), size.tokens, size.width,
           kTogether, static_cast<long long>(scale.stride(0)), gradient, of_x, x, moments, scale,
           for_x, parts);
    const variable_list found = gradients_of(card_in(context), parts, scale.scalar_type());
    return {at::Tensor(), for_x, found[0], found[1]};
  }
};

struct GatedModulate : torch::autograd::Function<GatedModulate> {
  static variable_list forward(AutogradContext* context, const CardPtr& card, const at::Tensor& x,
                               const at::Tensor& y, const at::Tensor& gate, const at::Tensor& shift,
                               const at::Tensor& scale) {
    const Size size(x);
    const at::Tensor summed = at::empty_like(x), out = at::empty(x.sizes(), shift.options());
    const at::Tensor moments = at::empty({size.samples, size.tokens, 2}, x.options());
    launch(card, "gated_modulate", shift, size.each_row(), size.tokens, size.width,
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
    const at::Tensor parts =
        at::empty({size.samples, size.parts(), 3, size.width}, summed.options());
    launch(card_in(context), "gated_modulate_backward", scale, size.each_part(), size.tokens,
           size.width, kTogether, static_cast<long long>(scale.stride(0)), gradient, of_summed,
           summed, moments, scale, y, gate, for_x, for_y, parts);
    const variable_list found = gradients_of(card_in(context), parts, scale.scalar_type());
    return {at::Tensor(), for_x, for_y, found[2], found[0], found[1]};
  }
};

struct AddGated : torch::autograd::Function<AddGated> {
  static at::Tensor forward(AutogradContext* context, const CardPtr& card, const at::Tensor& x,
                            const at::Tensor& y, const at::Tensor& gate) {
    const Size size(x);
    const at::Tensor out = at::empty_like(x);
    constexpr unsigned kThreads = 256;
    const std::int64_t fours = std::int64_t{size.tokens} * size.width / 4;
    launch(card, "add_gated", gate,
           {static_cast<unsigned>(size.samples), std::min(kMostRows, parts_of(fours, kThreads)),
            kThreads},
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
    const at::Tensor parts =
        at::empty({size.samples, size.parts(), 1, size.width}, gradient.options());
    launch(card_in(context), "add_gated_backward", gate, size.each_part(), size.tokens, size.width,
           kTogether, static_cast<long long>(gate.stride(0)), gradient, y, gate, for_y, parts);
    return {at::Tensor(), gradient, for_y,
            gradients_of(card_in(context), parts, gate.scalar_type())[0]};
  }
};

struct BiasGelu : torch::autograd::Function<BiasGelu> {
  static at::Tensor forward(AutogradContext* context, const CardPtr& card, const at::Tensor& x,
                            const at::Tensor& bias) {
    const at::Tensor out = at::empty_like(x);
    launch(card, "bias_gelu", x, grid_of(x), rows_of(x), static_cast<int>(bias.size(0)),
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
    launch(card_in(context), "bias_gelu_backward", x, grid, rows_of(x),
           static_cast<int>(bias.size(0)), kGeluTogether, gradient, x, bias, for_x, parts);
    return {at::Tensor(), for_x, parts.sum(0)};
  }

 private:
  static long long rows_of(const at::Tensor& x) { return x.numel() / x.size(-1); }
  static Card::Grid grid_of(const at::Tensor& x) {
    return {parts_of(rows_of(x), kGeluTogether), parts_of(x.size(-1) / 4, kGeluThreads),
            kGeluThreads};
  }
};

// Tensors that lie one behind another in memory as one; else a copy of them.
at::Tensor joined(at::TensorList parts) {
  std::int64_t next = parts[0].storage_offset(), rows = 0;
  bool is_one = true;
  for (const at::Tensor& part : parts) {
    is_one = is_one && part.is_contiguous() && part.is_alias_of(parts[0]) &&
             part.storage_offset() == next;
    next += part.numel();
    rows += part.size(0);
  }
  if (!is_one) return at::cat(parts);
  std::vector<std::int64_t> shape = parts[0].sizes().vec();
  shape[0] = rows;
  return parts[0].as_strided(shape, parts[0].strides());
}

// Several linear layers of one input, as one product: weights and biases, all
// of as many rows. Its gradients are parts of one product too.
struct Linears : torch::autograd::Function<Linears> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input,
                            at::TensorList weights, at::TensorList biases) {
    const c10::DeviceType device = input.device().type();
    const at::ScalarType type = at::autocast::is_autocast_enabled(device)
                                    ? at::autocast::get_autocast_dtype(device)
                                    : input.scalar_type();
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(at::autocast_dispatch_keyset);
    const at::Tensor x = input.to(type), weight = joined(weights).to(type);
    context->save_for_backward({x, weight});
    context->saved_data["layers"] = static_cast<std::int64_t>(weights.size());
    context->saved_data["type"] = weights[0].scalar_type();
    context->saved_data["bias_type"] = biases[0].scalar_type();
    return at::linear(x, weight, joined(biases).to(type));
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(at::autocast_dispatch_keyset);
    const auto saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1];
    const auto layers = context->saved_data["layers"].toInt();
    const at::Tensor gradient = gradients[0].reshape({-1, weight.size(0)});
    variable_list found{at::Tensor()};
    if (context->needs_input_grad(0)) found[0] = at::mm(gradient, weight).view(x.sizes());
    const at::Tensor for_weights = at::mm(gradient.t(), x.reshape({-1, weight.size(1)}))
                                       .to(context->saved_data["type"].toScalarType());
    const at::Tensor for_biases =
        at::sum(gradient, 0, /*keepdim=*/false, context->saved_data["bias_type"].toScalarType());
    for (const at::Tensor& each : {for_weights, for_biases})
      for (const at::Tensor& part : each.chunk(layers)) found.push_back(part);
    return found;
  }
};

class CudaKernels : public Kernels {
 public:
  explicit CudaKernels(std::shared_ptr<Card> card)
      : card_(c10::make_intrusive<Held>(std::move(card))) {}

  std::string fingerprint() const override {
    const std::string translator = card_->card->translator();
    return text("fast ", kFastGeneration, translator.empty() ? "" : " by ", translator);
  }

  at::Tensor linear(const at::Tensor& input, const at::Tensor& weight,
                    const at::Tensor& bias) const override {
    return Linears::apply(input, at::TensorList(weight), at::TensorList(bias));
  }

  at::Tensor linear_gelu(const at::Tensor& input, const at::Tensor& weight,
                         const at::Tensor& bias) const override {
    const at::Tensor rows = at::linear(input, weight);
    return BiasGelu::apply(card_, rows.to(type_of_product(rows)).contiguous(),
                           bias.to(at::kFloat).contiguous());
  }

  at::Tensor modulate(const at::Tensor& x, const at::Tensor& shift,
                      const at::Tensor& scale) const override {
    return keep_and_modulate(x, shift, scale).second;
  }

  std::pair<at::Tensor, at::Tensor> keep_and_modulate(const at::Tensor& x, const at::Tensor& shift,
                                                      const at::Tensor& scale) const override {
    const variable_list in = of_samples({shift, scale}, type_of_product(shift));
    const auto both = Modulate::apply(card_, x.to(at::kFloat).contiguous(), in[0], in[1]);
    return {both[0], both[1]};
  }

  at::Tensor add_gated(const at::Tensor& x, const at::Tensor& y,
                       const at::Tensor& gate) const override {
    const at::ScalarType type = type_of_product(y);
    return AddGated::apply(card_, x.to(at::kFloat).contiguous(), y.to(type).contiguous(),
                           of_samples({gate}, type)[0]);
  }

  std::pair<at::Tensor, at::Tensor> add_gated_and_modulate(const at::Tensor& x, const at::Tensor& y,
                                                           const at::Tensor& gate,
                                                           const at::Tensor& shift,
                                                           const at::Tensor& scale) const override {
    const at::ScalarType type = type_of_product(y);
    const variable_list in = of_samples({gate, shift, scale}, type);
    const auto both = GatedModulate::apply(card_, x.to(at::kFloat).contiguous(),
                                           y.to(type).contiguous(), in[0], in[1], in[2]);
    return {both[0], both[1]};
  }

  // The three projections are one product, and the rest is LibTorch's own
  // kernel. Its gradients are written into one buffer, which lies as the
  // product's result does.
  at::Tensor attention(const at::Tensor& input, const Projections& projections,
                       std::int64_t heads) const override {
    const std::int64_t batch = input.size(0), tokens = input.size(1);
    const std::int64_t width = projections.weights[0].size(0);
    const auto parts = Linears::apply(input, at::TensorList(projections.weights),
                                      at::TensorList(projections.biases))
                           .view({batch, tokens, 3, heads, width / heads})
                           .unbind(2);  // each [B,T,heads,width / heads]
    return at::scaled_dot_product_attention(parts[0].transpose(1, 2), parts[1].transpose(1, 2),
                                            parts[2].transpose(1, 2))
        .transpose(1, 2)
        .reshape({batch, tokens, width});
  }

  // Key and value are one product.
  at::Tensor cross_attention(const at::Tensor& input, const at::Tensor& context,
                             const Projections& projections, std::int64_t heads,
                             const at::Tensor& bias) const override {
    const std::int64_t batch = input.size(0), tokens = input.size(1), others = context.size(1);
    const std::int64_t width = projections.weights[0].size(0);
    const auto query = linear(input, projections.weights[0], projections.biases[0])
                           .view({batch, tokens, heads, width / heads})
                           .transpose(1, 2);
    const auto parts = Linears::apply(context, at::TensorList(projections.weights).slice(1),
                                      at::TensorList(projections.biases).slice(1))
                           .view({batch, others, 2, heads, width / heads})
                           .unbind(2);  // each [B,N,heads,width / heads]
    return at::scaled_dot_product_attention(query, parts[0].transpose(1, 2),
                                            parts[1].transpose(1, 2),
                                            bias.to(query.scalar_type()).unsqueeze(1))
        .transpose(1, 2)
        .reshape({batch, tokens, width});
  }

 private:
  CardPtr card_;
};

}  // namespace

std::shared_ptr<const Kernels> cuda_kernels(std::shared_ptr<Card> card) {
  return std::make_shared<CudaKernels>(std::move(card));
}

}  // namespace skerry::diffusion
