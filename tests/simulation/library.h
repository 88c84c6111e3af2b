// SPDX-License-Identifier: Apache-2.0
// The objects of a simulation by their names, and the weights that stand in
// checkpoints. Disks hold names only: an object's content follows from its
// name, as it does from a hash.
//
// Training is a hash chain: the weights after a step are the hash of the
// weights before it and (seed, expert, attempt, step). So "the right weights"
// is a statement that can be checked, and one lost, doubled or swapped step
// shows.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "base/hash.h"
#include "base/ids.h"
#include "coordinator/core/core.h"
#include "protocol/skerry.pb.h"

namespace skerry::simulation {

struct Object {
  Hash name;
  std::uint64_t manifest_bytes = 0;
  std::uint64_t bytes = 0;
  bool checkpoint = false;
  coordinator::ObjectFacts facts;
  Hash weights;
  pb::ObjectRef ref() const;
};

// What an engine trains: where it stands.
struct Training {
  std::uint64_t seed = 0;
  ExpertIndex expert = 0;
  std::uint32_t attempt = 0;
  Step step = 0;
  Hash weights;  // zero before the first step
};

void train_step(Training& training);

// Whether training this attempt ends in non-finite weights at this step: the
// same on every machine, one in `one_in` of attempts (0: never), somewhere in
// the first `steps`.
bool is_non_finite(const Training& training, std::uint64_t one_in, Step steps);

class Library {
 public:
  const Object& add_file(const std::string& name, std::uint64_t bytes);
  // The facts' name is ignored.
  const Object& add_checkpoint(const coordinator::ObjectFacts& facts, const Hash& weights,
                               std::uint64_t bytes);
  // Made by the coordinator, as its record names it; perhaps known already.
  void add_made(const pb::ObjectRef& ref);
  // REQUIRES: it was added.
  const Object& at(const Hash& name) const;
  const Object* find(const Hash& name) const;

 private:
  std::map<Hash, Object> objects_;
};

}  // namespace skerry::simulation
