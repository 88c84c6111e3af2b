// SPDX-License-Identifier: Apache-2.0
#include "diffusion/sample/ensemble.h"

#include <algorithm>

#include "base/check.h"
#include "diffusion/runtime/autocast.h"
#include "diffusion/runtime/device.h"

namespace skerry::diffusion {
namespace {

// Drops experts until it fits, or until none is left to drop.
template <class Body, class MakeRoom>
auto with_room(const Body& body, const MakeRoom& make_room) {
  while (true) {
    try {
      return body();
    } catch (const std::exception& error) {
      if (!is_out_of_memory(error) || !make_room()) throw;
    }
  }
}

Result<Computing> computing(int device, const std::string& precision, const ModelSpec& model) {
  Computing by;
  ASSIGN_OR_RETURN(by.device,
                   open_device(device, static_cast<std::uint32_t>(at::get_num_threads())));
  by.bf16 = precision == "bf16";
  const bool fast = by.bf16 || !by.device.is_cpu();
  by.kernels =
      make_kernels(fast ? KernelChoice::kFast : KernelChoice::kReference, by.device, model);
  return by;
}

}  // namespace

Result<Ensemble> Ensemble::load(const std::string& folder, int device, std::size_t resident,
                                const std::string& precision) {
  ASSIGN_OR_RETURN(const EnsembleIndex index, read_ensemble_index(folder));
  const Result<Computing> by = guarded([&] { return computing(device, precision, index.model); });
  if (!by) return Error(by.error());
  return load(folder, *by, resident);
}

Result<Ensemble> Ensemble::load(const std::string& folder, const Computing& by,
                                std::size_t resident) {
  ASSIGN_OR_RETURN(EnsembleIndex index, read_ensemble_index(folder));
  return guarded([&]() -> Result<Ensemble> {
    Ensemble ensemble(std::move(index), by, resident);
    ensemble.places_.resize(ensemble.index_.experts());
    for (std::size_t k = 0; k < ensemble.experts(); ++k) {
      ASSIGN_OR_RETURN(const std::vector<std::string> paths, ensemble.index_.weights_paths(k));
      for (const std::string& path : paths) {
        ASSIGN_OR_RETURN(storage::Safetensors file, storage::Safetensors::open(path));
        ensemble.places_[k].files.push_back(std::move(file));
      }
      TRY(ensemble.bring_in(k));  // so that every file is known to be whole
    }
    return ensemble;
  });
}

Result<void> Ensemble::bring_in(std::size_t expert) {
  Place& place = places_[expert];
  place.asked = ++questions_;
  if (place.model) return {};
  const auto here = [this] {
    return static_cast<std::size_t>(
        std::ranges::count_if(places_, [](const Place& each) { return each.model != nullptr; }));
  };
  while (resident_ > 0 && here() >= resident_) drop_oldest(expert);
  ASSIGN_OR_RETURN(std::vector<at::Tensor> weights, load_weights(place.files, "", index_.model));
  const auto to_device = [&] {
    for (at::Tensor& weight : weights) weight = weight.to(by_.device);
  };
  with_room(to_device, [&] { return drop_oldest(expert); });
  place.model = make_denoiser(index_.model, std::move(weights), by_.device, by_.kernels);
  ++loads_;
  return {};
}

bool Ensemble::drop_oldest(std::size_t kept) {
  Place* oldest = nullptr;
  for (std::size_t k = 0; k < places_.size(); ++k) {
    if (k == kept || !places_[k].model) continue;
    if (oldest == nullptr || places_[k].asked < oldest->asked) oldest = &places_[k];
  }
  if (oldest == nullptr) return false;
  oldest->model.reset();
  return true;
}

at::Tensor Ensemble::velocity(std::size_t expert, const at::Tensor& x_t, double t,
                              const Condition& condition) {
  return velocity(expert, x_t, at::full({x_t.size(0)}, t, x_t.options().dtype(at::kFloat)),
                  condition);
}

at::Tensor Ensemble::velocity(std::size_t expert, const at::Tensor& x_t, const at::Tensor& t,
                              const Condition& condition) {
  const at::NoGradGuard no_grad;
  const Result<void> here = bring_in(expert);
  SKERRY_CHECK(here.has_value(), "weights that were whole are not any more: ",
               here.has_value() ? "" : here.error().message);
  const torch::Device on = by_.device;
  Condition there;
  if (index_.model.is_pixart()) {
    there = {.captions = condition.captions.to(on), .mask = condition.mask.to(on)};
  } else {
    const auto null_label = static_cast<std::int64_t>(index_.model.null_label());
    const at::Tensor& labels = condition.labels;
    there.labels = at::where(labels < 0, at::full_like(labels, null_label), labels).to(on);
  }
  const auto answer = [&] {
    const Autocast autocast(on, by_.bf16);
    return places_[expert].model->forward(x_t.to(on), t.to(on, at::kFloat), there).to(at::kFloat);
  };
  return with_room(answer, [&] { return drop_oldest(expert); });
}

}  // namespace skerry::diffusion
