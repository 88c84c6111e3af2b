// SPDX-License-Identifier: Apache-2.0
// An ensemble folder in memory: its experts as models, and how often each has
// seen each label. Includes LibTorch: for this folder only.
// THREADS: one at a time.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "diffusion/model/model.h"
#include "diffusion/sample/ensemble_index.h"

namespace skerry::diffusion {

// The device, kernels and precision of the experts.
struct Computing {
  torch::Device device{torch::kCPU};
  std::shared_ptr<const Kernels> kernels = reference_kernels();
  bool bf16 = false;  // matrix products in it
};

class Ensemble {
 public:
  // Reads ensemble.json, every expert's weights and the label counts of
  // router/. `device` as in TrainSpec, `precision` fp32 or bf16.
  // At most `resident` experts stay on the device; 0: all that fit. The least
  // recently used one makes room for the next, which is read from the files
  // again.
  // A card uses our kernels if it has them. The CPU uses the reference in fp32
  // and the fast loops in bf16.
  static Result<Ensemble> load(const std::string& folder, int device, std::size_t resident = 0,
                               const std::string& precision = "fp32");
  static Result<Ensemble> load(const std::string& folder, const Computing& by,
                               std::size_t resident = 0);

  const EnsembleIndex& index() const { return index_; }
  std::size_t experts() const { return places_.size(); }
  torch::Device device() const { return by_.device; }
  // RETURNS: how often an expert was loaded onto the device.
  std::uint64_t loads() const { return loads_; }

  // RETURNS: expert k's velocity, fp32, at x_t [B,C,S,S] and time t, for labels
  // [B] i64 with −1 = none, or for captions. Tensors already on the device are
  // not moved.
  at::Tensor velocity(std::size_t expert, const at::Tensor& x_t, double t,
                      const Condition& condition);
  // The same at times t [B].
  at::Tensor velocity(std::size_t expert, const at::Tensor& x_t, const at::Tensor& t,
                      const Condition& condition);

 private:
  struct Place {
    std::vector<storage::Safetensors> files;  // mapped: unused parts take no memory
    std::unique_ptr<Denoiser> model;          // none: not on the device
    std::uint64_t asked = 0;                  // number of the last call
  };
  Ensemble(EnsembleIndex index, const Computing& by, std::size_t resident)
      : index_(std::move(index)), by_(by), resident_(resident) {}
  Result<void> bring_in(std::size_t expert);
  // RETURNS: false if no expert except `kept` is on the device.
  bool drop_oldest(std::size_t kept);

  EnsembleIndex index_;
  Computing by_;
  std::size_t resident_;
  std::vector<Place> places_;
  std::uint64_t questions_ = 0, loads_ = 0;
};

}  // namespace skerry::diffusion
