// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/library.h"

#include <cstring>

#include "base/check.h"
#include "base/random.h"
#include "base/text.h"
#include "storage/manifest.h"

namespace skerry::simulation {

pb::ObjectRef Object::ref() const {
  pb::ObjectRef out;
  out.set_manifest(name.raw());
  out.set_manifest_bytes(manifest.size());
  out.set_bytes(content.size());
  out.set_name(facts.name);
  return out;
}

void train_step(Training& training) {
  ++training.step;
  struct {
    Hash weights;
    std::uint64_t words[4];
  } const bytes{training.weights,
                {training.seed, training.expert, training.attempt, training.step}};
  static_assert(sizeof bytes == Hash::kBytes + 32);
  training.weights = blake2b({reinterpret_cast<const char*>(&bytes), sizeof bytes});
}

bool is_non_finite(const Training& training, std::uint64_t one_in, Step steps) {
  if (one_in == 0) return false;
  Stream stream(Position{.seed = training.seed,
                         .expert = training.expert,
                         .attempt = training.attempt,
                         .step = 0x6e616e,
                         .purpose = skerry::Purpose::kSimulation});
  return stream.below(one_in) == 0 && 1 + stream.below(steps) == training.step;
}

std::string encode_training(const Training& training) {
  const std::uint64_t words[4] = {training.seed, training.expert, training.attempt, training.step};
  return std::string(reinterpret_cast<const char*>(words), sizeof words) + training.weights.raw();
}

Result<Training> decode_training(std::string_view content) {
  std::uint64_t words[4];
  if (content.size() != sizeof words + Hash::kBytes)
    return fail(ErrorCode::kCorrupt, text("weights of ", content.size(), " bytes"));
  std::memcpy(words, content.data(), sizeof words);
  ASSIGN_OR_RETURN(const Hash weights, Hash::from_raw(content.substr(sizeof words)));
  return Training{.seed = words[0],
                  .expert = static_cast<ExpertIndex>(words[1]),
                  .attempt = static_cast<std::uint32_t>(words[2]),
                  .step = words[3],
                  .weights = weights};
}

const Object& Library::add_file(const std::string& name) {
  static std::map<std::string, Object> made;  // the same in every simulation
  Object& object = made[name];
  if (object.manifest.empty()) {
    object.content = "the bytes of " + name;
    object.chunk = blake2b(object.content);
    object.facts.name = name;
    storage::Manifest manifest;
    manifest.name = name;
    const auto size = static_cast<std::uint32_t>(object.content.size());
    manifest.parts.push_back({std::string(storage::kPartFile), {}, {{object.chunk, size}}});
    auto named = storage::encode_manifest(std::move(manifest));
    SKERRY_CHECK(named.has_value(), "a small file's manifest is one");
    object.name = named->name;
    object.manifest = std::move(named->encoded);
  }
  return objects_[object.name] = object;
}

const Object& Library::add_checkpoint(Object object) {
  const Hash name = object.name;
  return objects_[name] = std::move(object);
}

const Object& Library::at(const Hash& name) const {
  const Object* found = find(name);
  SKERRY_CHECK(found != nullptr, "an object that nobody made: ", name.short_hex());
  return *found;
}

const Object* Library::find(const Hash& name) const {
  const auto found = objects_.find(name);
  return found == objects_.end() ? nullptr : &found->second;
}

}  // namespace skerry::simulation
