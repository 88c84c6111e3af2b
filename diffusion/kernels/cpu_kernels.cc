// SPDX-License-Identifier: Apache-2.0
#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>

#include <cmath>
#include <vector>

#include "base/text.h"
#include "diffusion/kernels/fast_generation.h"
#include "diffusion/kernels/kernels.h"
#include "diffusion/kernels/pointwise.h"
#include "diffusion/kernels/product.h"

namespace skerry::diffusion {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor wide(const at::Tensor& tensor) { return tensor.to(at::kFloat).contiguous(); }

// body(sample, its size) for every sample of [B,T,W]; at least `together` of
// them on one thread.
template <class Body>
void each_sample(const at::Tensor& tensor, const Body& body, std::int64_t together = 1) {
  const pointwise::Rows size{static_cast<std::size_t>(tensor.size(1)),
                             static_cast<std::size_t>(tensor.size(2))};
  at::parallel_for(0, tensor.size(0), together, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t sample = begin; sample < end; ++sample) body(sample, size);
  });
}

// Where sample `index` of a contiguous tensor begins.
template <class P = float>
const P* at_sample(const at::Tensor& tensor, std::int64_t index) {
  return static_cast<const P*>(tensor.const_data_ptr()) + index * tensor.stride(0);
}
template <class P = float>
P* at_sample(at::Tensor& tensor, std::int64_t index) {
  return static_cast<P*>(tensor.mutable_data_ptr()) + index * tensor.stride(0);
}

// body(P{}) with the type of a tensor's numbers.
template <class Body>
void in_type_of(const at::Tensor& tensor, const Body& body) {
  if (tensor.scalar_type() == at::kBFloat16) {
    body(pointwise::Bf16{});
  } else {
    body(float{});
  }
}

struct Modulate : torch::autograd::Function<Modulate> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& shift,
                            const at::Tensor& scale, at::ScalarType type) {
    at::Tensor out = at::empty_like(x, x.options().dtype(type));
    at::Tensor moments = at::empty({x.size(0), x.size(1), 2}, x.options());
    in_type_of(out, [&]<class P>(P) {
      each_sample(x, [&](std::int64_t i, pointwise::Rows size) {
        pointwise::modulate(size, at_sample(x, i), at_sample(shift, i), at_sample(scale, i),
                            at_sample<P>(out, i), at_sample(moments, i));
      });
    });
    context->save_for_backward({x, scale, moments});
    return out;
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &scale = saved[1], &moments = saved[2];
    const at::Tensor gradient = gradients[0].contiguous();
    at::Tensor for_x = at::empty_like(x), for_shift = at::empty_like(scale),
               for_scale = at::empty_like(scale);
    in_type_of(gradient, [&]<class P>(P) {
      each_sample(x, [&](std::int64_t i, pointwise::Rows size) {
        pointwise::modulate_backward(size, at_sample<P>(gradient, i), at_sample(x, i),
                                     at_sample(scale, i), at_sample(moments, i),
                                     at_sample(for_x, i), at_sample(for_shift, i),
                                     at_sample(for_scale, i));
      });
    });
    return {for_x, for_shift, for_scale, at::Tensor()};
  }
};

struct AddGated : torch::autograd::Function<AddGated> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& y,
                            const at::Tensor& gate) {
    at::Tensor out = at::empty_like(x);
    in_type_of(y, [&]<class P>(P) {
      each_sample(x, [&](std::int64_t i, pointwise::Rows size) {
        pointwise::add_gated(size, at_sample(x, i), at_sample<P>(y, i), at_sample(gate, i),
                             at_sample(out, i));
      });
    });
    context->save_for_backward({y, gate});
    return out;
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &y = saved[0], &gate = saved[1];
    const at::Tensor gradient = gradients[0].contiguous();
    at::Tensor for_y = at::empty_like(y), for_gate = at::empty_like(gate);
    in_type_of(y, [&]<class P>(P) {
      each_sample(y, [&](std::int64_t i, pointwise::Rows size) {
        pointwise::add_gated_backward(size, at_sample(gradient, i), at_sample<P>(y, i),
                                      at_sample(gate, i), at_sample<P>(for_y, i),
                                      at_sample(for_gate, i));
      });
    });
    return {gradient, for_y, for_gate};
  }
};

struct Gelu : torch::autograd::Function<Gelu> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x) {
    at::Tensor out = at::empty_like(x);
    in_type_of(x, [&]<class P>(P) {
      each_sample(x, [&](std::int64_t i, pointwise::Rows size) {
        pointwise::gelu(size.rows * size.width, at_sample<P>(x, i), at_sample<P>(out, i));
      });
    });
    context->save_for_backward({x});
    return out;
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const at::Tensor x = context->get_saved_variables()[0];
    const at::Tensor gradient = gradients[0].contiguous();
    at::Tensor for_x = at::empty_like(x);
    in_type_of(x, [&]<class P>(P) {
      each_sample(x, [&](std::int64_t i, pointwise::Rows size) {
        pointwise::gelu_backward(size.rows * size.width, at_sample<P>(gradient, i),
                                 at_sample<P>(x, i), at_sample<P>(for_x, i));
      });
    });
    return {for_x};
  }
};

struct Attention : torch::autograd::Function<Attention> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& rows, std::int64_t heads) {
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(at::autocast_dispatch_keyset);
    const std::int64_t batch = rows.size(0), tokens = rows.size(1), width = rows.size(2) / 3;
    at::Tensor parts =
        at::empty({3, batch * heads, tokens, width / heads}, rows.options());  // query, key, value
    for (std::int64_t part = 0; part < 3; ++part) {
      at::Tensor into = parts[part];
      gather(rows, part * width, heads, into);
    }
    at::Tensor weights = at::bmm(parts[0], parts[1].transpose(1, 2));  // [B·heads,T,T]
    in_type_of(weights, [&]<class P>(P) {
      each_sample(weights, [&](std::int64_t i, pointwise::Rows size) {
        std::vector<float> room(size.width);
        pointwise::softmax(size, factor(parts), at_sample<P>(weights, i), room.data());
      });
    });
    at::Tensor out = at::empty({batch, tokens, width}, rows.options());
    scatter(at::bmm(weights, parts[2]), heads, out, 0);
    context->save_for_backward({parts, weights});
    context->saved_data["heads"] = heads;
    return out;
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &parts = saved[0], &weights = saved[1];
    const std::int64_t heads = context->saved_data["heads"].toInt();
    const at::Tensor gradient = gradients[0].contiguous();  // [B,T,W]
    const std::int64_t width = gradient.size(2);
    at::Tensor for_mixed = at::empty_like(parts[0]);
    gather(gradient, 0, heads, for_mixed);
    at::Tensor for_scores = at::bmm(for_mixed, parts[2].transpose(1, 2));
    in_type_of(weights, [&]<class P>(P) {
      each_sample(weights, [&](std::int64_t i, pointwise::Rows size) {
        pointwise::softmax_backward(size, factor(parts), at_sample<P>(weights, i),
                                    at_sample<P>(for_scores, i));
      });
    });
    at::Tensor for_rows =
        at::empty({gradient.size(0), gradient.size(1), 3 * width}, gradient.options());
    scatter(at::bmm(for_scores, parts[1]), heads, for_rows, 0);
    scatter(at::bmm(for_scores.transpose(1, 2), parts[0]), heads, for_rows, width);
    scatter(at::bmm(weights.transpose(1, 2), for_mixed), heads, for_rows, 2 * width);
    return {for_rows, at::Tensor()};
  }

 private:
  static float factor(const at::Tensor& parts) {
    return 1.0F / std::sqrt(static_cast<float>(parts.size(3)));
  }
  // Columns [first, first + width) of tokens [B,T,…] into heads
  // [B·heads,T,width / heads], and back.
  static void gather(const at::Tensor& tokens, std::int64_t first, std::int64_t heads,
                     at::Tensor& into) {
    in_type_of(tokens, [&]<class P>(P) {
      const auto one = [&](std::int64_t i, pointwise::Rows size) {
        const P* from = at_sample<P>(tokens, i / heads) + first + (i % heads) * into.size(2);
        pointwise::gather(size, from, static_cast<std::size_t>(tokens.stride(1)),
                          at_sample<P>(into, i));
      };
      each_sample(into, one, heads);
    });
  }
  static void scatter(const at::Tensor& from, std::int64_t heads, at::Tensor& tokens,
                      std::int64_t first) {
    in_type_of(tokens, [&]<class P>(P) {
      const auto one = [&](std::int64_t i, pointwise::Rows size) {
        P* into = at_sample<P>(tokens, i / heads) + first + (i % heads) * from.size(2);
        pointwise::scatter(size, at_sample<P>(from, i), into,
                           static_cast<std::size_t>(tokens.stride(1)));
      };
      each_sample(from, one, heads);
    });
  }
};

// bf16 stays bf16.
at::Tensor plain(const at::Tensor& tensor) {
  return tensor.to(type_of_product(tensor)).contiguous();
}

class CpuKernels : public Kernels {
 public:
  std::string fingerprint() const override { return text("fast ", kFastGeneration); }

  at::Tensor linear(const at::Tensor& input, const at::Tensor& weight,
                    const at::Tensor& bias) const override {
    return diffusion::linear(input, weight, bias, WeightGradient::kFastest);
  }

  at::Tensor linear_gelu(const at::Tensor& input, const at::Tensor& weight,
                         const at::Tensor& bias) const override {
    return Gelu::apply(plain(linear(input, weight, bias)));
  }

  at::Tensor modulate(const at::Tensor& x, const at::Tensor& shift,
                      const at::Tensor& scale) const override {
    return Modulate::apply(wide(x), wide(shift), wide(scale), type_of_product(shift));
  }

  at::Tensor add_gated(const at::Tensor& x, const at::Tensor& y,
                       const at::Tensor& gate) const override {
    return AddGated::apply(wide(x), plain(y), wide(gate));
  }

  // The three projections are one product. Under autocast products are taken in
  // bf16 where the CPU has it, else in fp32.
  at::Tensor attention(const at::Tensor& input, const Projections& projections,
                       std::int64_t heads) const override {
    const at::Tensor rows =
        linear(input, at::cat(projections.weights), at::cat(projections.biases));  // [B,T,3W]
    return Attention::apply(multiplies_bf16_now() ? plain(rows) : wide(rows), heads);
  }
};

}  // namespace

std::shared_ptr<const Kernels> cpu_kernels() { return std::make_shared<CpuKernels>(); }

}  // namespace skerry::diffusion
