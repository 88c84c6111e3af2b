// SPDX-License-Identifier: Apache-2.0
// The NVIDIA driver's library, by dlopen: a machine without a card has none.
// Its headers come with a CUDA toolkit. The library stays loaded until the
// process ends.
// THREADS: any.
#pragma once

#include <dlfcn.h>

#include <string>

namespace skerry {

class CudaLibrary {
 public:
  static constexpr const char* kName = "libcuda.so.1";
  static constexpr int kNoFunction = -1;

  explicit CudaLibrary(const std::string& name = kName)
      : library_(::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (library_ != nullptr) return;
    const char* reason = ::dlerror();
    why_missing_ = reason == nullptr ? name : reason;
  }
  bool is_there() const { return library_ != nullptr; }
  const std::string& why_missing() const { return why_missing_; }
  bool has(const char* function) const { return ::dlsym(library_, function) != nullptr; }

  // Calls a function of the driver's C interface. The arguments have exactly
  // the types of its parameters.
  // REQUIRES: is_there().
  // RETURNS: what it returns, 0 for success; kNoFunction: this driver lacks it.
  template <class... Arguments>
  int call(const char* function, Arguments... arguments) const {
    const auto body = reinterpret_cast<int (*)(Arguments...)>(::dlsym(library_, function));
    return body == nullptr ? kNoFunction : body(arguments...);
  }

 private:
  void* library_;
  std::string why_missing_;
};

}  // namespace skerry
