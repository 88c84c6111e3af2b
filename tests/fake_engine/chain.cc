// SPDX-License-Identifier: Apache-2.0
#include "tests/fake_engine/chain.h"

#include <cstring>
#include <vector>

#include "base/text.h"

namespace skerry::fake {
namespace {

// Floats in [0, 1) that follow from the state and a name.
std::string weights_of(const Hash& state, std::string_view name, std::size_t count) {
  std::string bytes(count * sizeof(float), '\0');
  Hash block;
  for (std::size_t i = 0; i < count; ++i) {
    if (i % 8 == 0) block = blake2b(text(state.hex(), " ", name, " ", i / 8));
    std::uint32_t bits = 0;
    std::memcpy(&bits, block.bytes.data() + (i % 8) * 4, 4);
    const float value = static_cast<float>(bits >> 8) * 0x1p-24F;
    std::memcpy(bytes.data() + i * sizeof(float), &value, sizeof value);
  }
  return bytes;
}

}  // namespace

Chain Chain::start(std::uint64_t seed, std::uint32_t expert) {
  return {seed, expert, 0, blake2b(text("start ", seed, " ", expert))};
}

void Chain::advance(std::uint32_t attempt) {
  ++step;
  state = blake2b(text(state.hex(), " ", seed, " ", expert, " ", attempt, " ", step));
}

double Chain::loss() const { return 1.0 / (1.0 + static_cast<double>(step) / 100.0); }

Result<std::string> Chain::encode(std::size_t weights) const {
  using storage::DType;
  std::vector<std::string> kept;
  std::vector<storage::TensorView> tensors;
  const std::vector<std::string> names = {"ema/weight", "raw/weight", "m/weight", "v/weight"};
  for (const std::string& name : names) kept.push_back(weights_of(state, name, weights));
  for (std::size_t i = 0; i < names.size(); ++i)
    tensors.push_back({names[i], DType::kF32, {weights}, kept[i]});
  const std::string chain = state.raw();
  tensors.push_back({"raw/chain", DType::kU8, {Hash::kBytes}, chain});
  return storage::encode_safetensors(
      tensors,
      {{"step", text(step)}, {"seed", text(seed)}, {"expert", text(expert)}, {"format", "fake"}});
}

Result<Chain> Chain::decode(const storage::Safetensors& file) {
  Chain chain;
  const auto number = [&](const std::string& key, auto& target) -> Result<void> {
    const auto at = file.header().metadata.find(key);
    if (at == file.header().metadata.end())
      return fail(ErrorCode::kInvalid, "the checkpoint has no " + key);
    target = static_cast<std::remove_reference_t<decltype(target)>>(std::stoull(at->second));
    return {};
  };
  TRY(number("step", chain.step));
  TRY(number("seed", chain.seed));
  TRY(number("expert", chain.expert));
  ASSIGN_OR_RETURN(const storage::TensorView state, file.tensor("raw/chain"));
  ASSIGN_OR_RETURN(chain.state, Hash::from_raw(state.data));
  ASSIGN_OR_RETURN(const storage::TensorView ema, file.tensor("ema/weight"));
  if (ema.data != weights_of(chain.state, "ema/weight", ema.shape.at(0))) {
    return fail(ErrorCode::kInvalid, "the checkpoint's weights do not follow from its chain");
  }
  return chain;
}

}  // namespace skerry::fake
