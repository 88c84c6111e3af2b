// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/library.h"

#include "base/check.h"
#include "base/random.h"

namespace skerry::simulation {

pb::ObjectRef Object::ref() const {
  pb::ObjectRef out;
  out.set_manifest(name.raw());
  out.set_manifest_bytes(manifest_bytes);
  out.set_bytes(bytes);
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

const Object& Library::add_file(const std::string& name, std::uint64_t bytes) {
  Object object;
  object.name = blake2b("file " + name);
  object.manifest_bytes = 200;
  object.bytes = bytes;
  object.facts.name = name;
  return objects_[object.name] = object;
}

const Object& Library::add_checkpoint(const coordinator::ObjectFacts& facts, const Hash& weights,
                                      std::uint64_t bytes) {
  Object object;
  object.facts = facts;
  object.facts.name.clear();
  object.checkpoint = true;
  object.manifest_bytes = 400;
  object.bytes = bytes;
  object.weights = weights;
  object.name =
      blake2b(text("checkpoint ", facts.run, " ", facts.expert, " ", facts.epoch.value(), " ",
                   facts.attempt, " ", facts.step, " ", facts.parent ? facts.parent->hex() : "-",
                   " ", facts.fingerprint, " ", weights.hex()));
  return objects_[object.name] = object;
}

void Library::add_made(const pb::ObjectRef& ref) {
  const Hash name = *Hash::from_raw(ref.manifest());
  if (objects_.contains(name)) return;
  Object& object = objects_[name];
  object.name = name;
  object.manifest_bytes = ref.manifest_bytes();
  object.bytes = ref.bytes();
  object.facts.name = ref.name();
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
