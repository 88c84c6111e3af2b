// SPDX-License-Identifier: Apache-2.0
// The objects of a simulation by their names, with what they hold. Files are
// small, of one chunk each. Checkpoints hold one tensor, the weights.
//
// Training is a hash chain: the weights after a step are the hash of the
// weights before it and (seed, expert, attempt, step). So "the right weights"
// is a statement that can be checked, and one lost, doubled or swapped step
// shows.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "base/hash.h"
#include "base/ids.h"
#include "base/result.h"
#include "coordinator/core/core.h"
#include "protocol/skerry.pb.h"

namespace skerry::simulation {

struct Object {
  Hash name;
  std::string manifest;  // encoded
  bool checkpoint = false;
  coordinator::ObjectFacts facts;
  Hash weights;
  Hash chunk;           // the only one
  std::string content;  // its bytes
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

// As a checkpoint's only tensor holds it. ON FAILURE: it holds something else.
std::string encode_training(const Training& training);
Result<Training> decode_training(std::string_view content);

// Whether training this attempt ends in non-finite weights at this step. It is
// the same on every machine: one in `one_in` attempts (0: none), within the
// first `steps`.
bool is_non_finite(const Training& training, std::uint64_t one_in, Step steps);

class Library {
 public:
  // A small file that somebody uploads.
  const Object& add_file(const std::string& name);
  // A checkpoint, as the node that made it has it on its disk.
  const Object& add_checkpoint(Object object);
  // REQUIRES: it was added.
  const Object& at(const Hash& name) const;
  const Object* find(const Hash& name) const;

 private:
  std::map<Hash, Object> objects_;
};

}  // namespace skerry::simulation
