// SPDX-License-Identifier: Apache-2.0
#include "diffusion/runtime/autocast.h"

#include <ATen/autocast_mode.h>

namespace skerry::diffusion {

Autocast::Autocast(torch::Device device, bool bf16) : device_(device.type()), bf16_(bf16) {
  if (!bf16_) return;
  enabled_before_ = at::autocast::is_autocast_enabled(device_);
  type_before_ = at::autocast::get_autocast_dtype(device_);
  at::autocast::set_autocast_enabled(device_, true);
  at::autocast::set_autocast_dtype(device_, at::kBFloat16);
  at::autocast::increment_nesting();
}

Autocast::~Autocast() {
  if (!bf16_) return;
  // The cache holds weights cast before the step that changes them.
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_dtype(device_, type_before_);
  at::autocast::set_autocast_enabled(device_, enabled_before_);
}

}  // namespace skerry::diffusion
