// SPDX-License-Identifier: Apache-2.0
#include "diffusion/model/checkpointed.h"

#include <ATen/autocast_mode.h>

#include "diffusion/runtime/autocast.h"

namespace skerry::diffusion {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Recipe : torch::CustomClassHolder {
  Recipe(Part made_by, std::size_t operand_count, torch::Device on)
      : part(std::move(made_by)),
        operands(operand_count),
        device(on),
        bf16(at::autocast::is_autocast_enabled(on.type())) {}
  Part part;
  std::size_t operands;
  torch::Device device;
  bool bf16;
};

struct Checkpointed : torch::autograd::Function<Checkpointed> {
  static at::Tensor forward(AutogradContext* context, const c10::intrusive_ptr<Recipe>& recipe,
                            at::TensorList inputs) {
    context->save_for_backward(inputs.vec());
    context->saved_data["recipe"] = c10::IValue::make_capsule(recipe);
    return recipe->part(inputs.slice(0, recipe->operands).vec());
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto recipe =
        c10::static_intrusive_pointer_cast<Recipe>(context->saved_data["recipe"].toCapsule());
    variable_list inputs = context->get_saved_variables();
    const auto end = inputs.begin() + static_cast<std::ptrdiff_t>(recipe->operands);
    for (auto operand = inputs.begin(); operand != end; ++operand) {
      *operand =
          operand->detach().set_requires_grad(true);  // the graph that is made here begins at them
    }
    const at::AutoGradMode with_gradients(true);
    const at::Tensor out = [&] {
      const Autocast autocast(recipe->device, recipe->bf16);
      return recipe->part({inputs.begin(), end});
    }();
    variable_list found = torch::autograd::grad({out}, inputs, {gradients[0]});
    found.insert(found.begin(), at::Tensor());  // of the recipe
    return found;
  }
};

}  // namespace

at::Tensor checkpointed(const Part& part, at::TensorList operands, at::TensorList weights) {
  variable_list inputs = operands.vec();
  inputs.insert(inputs.end(), weights.begin(), weights.end());
  return Checkpointed::apply(c10::make_intrusive<Recipe>(part, operands.size(), inputs[0].device()),
                             at::TensorList(inputs));
}

}  // namespace skerry::diffusion
