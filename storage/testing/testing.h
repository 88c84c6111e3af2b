// SPDX-License-Identifier: Apache-2.0
// Checkpoints and manifests for tests.
#pragma once

#include <string>
#include <vector>

#include "base/check.h"
#include "base/random.h"
#include "storage/manifest.h"
#include "storage/safetensors.h"

namespace skerry::storage {

template <class T>
T value_of(Result<T> result) {
  SKERRY_CHECK(result.has_value(), result.has_value() ? std::string() : result.error().message);
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

inline std::string random_bytes(std::size_t size, std::uint64_t seed) {
  Stream random(Position{.seed = seed, .purpose = Purpose::kSimulation});
  std::string bytes(size, '\0');
  for (std::size_t i = 0; i + 4 <= size; i += 4) {
    const std::uint32_t word = random.u32();
    bytes.replace(i, 4, reinterpret_cast<const char*>(&word), 4);
  }
  return bytes;
}

// A safetensors file as the engine's snapshots are: ema/, raw/, m/ and v/
// interleaved; one weight spans three chunks.
inline std::string snapshot_bytes(std::uint64_t seed) {
  const std::uint64_t large = (2 * kMaxChunkBytes + 400) / 4;
  std::vector<std::string> data;
  std::vector<TensorView> tensors;
  for (const std::string name : {"block.weight", "block.bias"}) {
    for (const std::string kind : {"raw/", "ema/", "m/", "v/"}) {
      const bool is_large = name == "block.weight" && kind == "ema/";
      const std::uint64_t count = is_large ? large : 100;
      // Moments start as zeros: equal chunks.
      data.push_back(kind == "m/" ? std::string(count * 4, '\0')
                                  : random_bytes(count * 4, seed * 100 + data.size()));
      tensors.push_back({kind + name, DType::kF32, {count}, {}});
    }
  }
  data.emplace_back();
  tensors.push_back({"raw/empty", DType::kI64, {0, 3}, {}});
  for (std::size_t i = 0; i < tensors.size(); ++i) tensors[i].data = data[i];
  return value_of(encode_safetensors(tensors, {{"step", "100"}}));
}

inline Safetensors snapshot(std::uint64_t seed) {
  return value_of(Safetensors::parse(snapshot_bytes(seed)));
}

inline Manifest checkpoint_facts(Step step = 100, std::uint64_t epoch = 7) {
  Manifest facts;
  facts.kind = ManifestKind::kCheckpoint;
  facts.run = RunId("r-0123456789");
  facts.expert = 2;
  facts.from_step = step - 50;
  facts.step = step;
  facts.epoch = Epoch(epoch);
  facts.attempt = 1;
  facts.parent = blake2b("parent");
  facts.fingerprint = "cpu";
  facts.spec = blake2b("spec");
  return facts;
}

}  // namespace skerry::storage
