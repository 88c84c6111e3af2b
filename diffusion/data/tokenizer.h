// SPDX-License-Identifier: Apache-2.0
// Token ids of texts, by the program skerry-tokenize, which it starts and
// speaks with. Does not include LibTorch.
// THREADS: one.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace skerry::diffusion {

class Tokenizer {
 public:
  // `model`: a spiece.model. The file tokenizer_config.json beside it may say
  // how many extra ids there are; the default is 100.
  // ON FAILURE: kInvalid: the model cannot be read; kNotFound: skerry-tokenize
  // is neither beside this program nor in PATH.
  static Result<Tokenizer> open(const std::string& model);
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();
  // RETURNS: the ids of each text, </s> last.
  // REQUIRES: UTF-8, at most kMaxCaptionBytes each.
  // ON FAILURE: kIo: the program ended.
  Result<std::vector<std::vector<std::int32_t>>> encode(std::span<const std::string> texts);

 private:
  struct Child;
  explicit Tokenizer(std::unique_ptr<Child> child);
  std::unique_ptr<Child> child_;
};

}  // namespace skerry::diffusion
