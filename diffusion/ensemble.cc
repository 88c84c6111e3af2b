#include "diffusion/ensemble.h"

#include "diffusion/device.h"

namespace skerry::diffusion {

Result<Ensemble> Ensemble::load(const std::string& folder, int device) {
  ASSIGN_OR_RETURN(EnsembleIndex index, read_ensemble_index(folder));
  return guarded([&]() -> Result<Ensemble> {
    ASSIGN_OR_RETURN(const torch::Device on,
                     open_device(device, static_cast<std::uint32_t>(at::get_num_threads())));
    std::vector<Dit> models;
    for (std::size_t k = 0; k < index.experts(); ++k) {
      ASSIGN_OR_RETURN(const std::vector<std::string> paths, index.weights_paths(k));
      std::vector<storage::Safetensors> files;
      for (const std::string& path : paths) {
        ASSIGN_OR_RETURN(storage::Safetensors file, storage::Safetensors::open(path));
        files.push_back(std::move(file));
      }
      ASSIGN_OR_RETURN(std::vector<at::Tensor> weights, load_weights(files, "", index.model));
      for (at::Tensor& weight : weights) weight = weight.to(on);
      models.emplace_back(index.model, std::move(weights), on);
    }
    return Ensemble(std::move(index), std::move(models), on);
  });
}

at::Tensor Ensemble::velocity(std::size_t expert, const at::Tensor& x_t, double t,
                              const at::Tensor& labels) const {
  return velocity(expert, x_t, at::full({x_t.size(0)}, t, at::kFloat), labels);
}

at::Tensor Ensemble::velocity(std::size_t expert, const at::Tensor& x_t, const at::Tensor& t,
                              const at::Tensor& labels) const {
  const at::NoGradGuard no_grad;
  const auto null_label = static_cast<std::int64_t>(index_.model.null_label());
  const auto rows = at::where(labels < 0, at::full_like(labels, null_label), labels);
  return models_[expert].forward(x_t.to(device_), t.to(device_, at::kFloat), rows.to(device_));
}

}  // namespace skerry::diffusion
