// An ensemble folder in memory: its experts as models, and how often each has seen each label.
// Includes LibTorch: for this folder only. Thread rule: one thread at a time.
#pragma once

#include <torch/torch.h>

#include <memory>
#include <string>
#include <vector>

#include "diffusion/ensemble_index.h"
#include "diffusion/model.h"

namespace skerry::diffusion {

class Ensemble {
 public:
  // Reads ensemble.json, every expert's weights and the label counts of router/. `device` as in TrainSpec.
  static Result<Ensemble> load(const std::string& folder, int device);

  const EnsembleIndex& index() const { return index_; }
  std::size_t experts() const { return models_.size(); }
  torch::Device device() const { return device_; }

  // Expert k's velocity at x_t [B,C,S,S] and time t, for labels [B] i64 with −1 = none.
  at::Tensor velocity(std::size_t expert, const at::Tensor& x_t, double t, const at::Tensor& labels) const;
  // The same at times t [B].
  at::Tensor velocity(std::size_t expert, const at::Tensor& x_t, const at::Tensor& t,
                      const at::Tensor& labels) const;

 private:
  Ensemble(EnsembleIndex index, std::vector<Dit> models, torch::Device device)
      : index_(std::move(index)), models_(std::move(models)), device_(device) {}
  EnsembleIndex index_;
  std::vector<Dit> models_;
  torch::Device device_;
};

}  // namespace skerry::diffusion
