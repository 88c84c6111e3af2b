// SPDX-License-Identifier: Apache-2.0
// Numbers that a card computes and the host reads later, so that the card
// always has work. Includes LibTorch: for this folder only.
// THREADS: one at a time.
#pragma once

#include <torch/torch.h>

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <optional>

namespace skerry::diffusion {

class LateNumbers {
 public:
  // Queues the copy to the host of `numbers` [n] on the current stream of their
  // device.
  explicit LateNumbers(const at::Tensor& numbers) : host_(numbers) {
    if (numbers.is_cpu()) return;
    host_ = at::empty(numbers.sizes(), numbers.options().device(torch::kCPU).pinned_memory(true));
    host_.copy_(numbers, /*non_blocking=*/true);
    const torch::Device device = numbers.device();
    copied_.emplace(device.type());
    copied_->record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
  }

  // Waits for the numbers, and not for work that was queued after them.
  // RETURNS: [n] on the host.
  const at::Tensor& read() const {
    if (copied_) copied_->synchronize();
    return host_;
  }

 private:
  at::Tensor host_;
  std::optional<c10::Event> copied_;
};

}  // namespace skerry::diffusion
