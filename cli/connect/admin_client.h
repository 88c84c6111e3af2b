// SPDX-License-Identifier: Apache-2.0
// What a command asks of a coordinator. The seam that lets every command be
// tested without a network: main connects a real one, tests hand in a fake one.
// Thread rule: one thread at a time. Failure rule: the coordinator's refusals
// come back with its code and message; a coordinator that cannot be reached is
// kUnavailable, a silent one kTimeout.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/result.h"
#include "exchange/chunk_store.h"
#include "protocol/endpoints.h"
#include "protocol/skerry.pb.h"

namespace skerry::cli {

struct WantedObject {
  Hash object;
  std::uint64_t manifest_bytes = 0;
  std::vector<std::string> parts;  // none: all
  std::uint64_t bytes = 0;         // about how many will come, for progress
};

// What a context says of the place it leads to; enough to make tokens.
struct Place {
  std::string coordinator_key;  // Ed25519, raw
  protocol::Endpoints endpoints;
  pb::Role role = pb::ROLE_NONE;  // of whose key it is
  std::string origin;             // the file that it was read from, for messages
};

// A party that objects are fetched from.
class ObjectSource {
 public:
  using Shown = std::function<void(std::uint64_t done_bytes, std::uint64_t total_bytes)>;

  virtual ~ObjectSource() = default;

  // Returns once `chunk_store` has sealed every object. Each chunk is verified
  // before it is written; chunks that are there are not fetched again.
  // ON FAILURE: kUnavailable: no source has one of them, or answers in time.
  virtual Result<void> fetch(const std::vector<WantedObject>& wanted,
                             exchange::ChunkStore& chunk_store, const Shown& shown) = 0;
};

class AdminClient : public ObjectSource {
 public:
  virtual Result<pb::AdminReply> ask(const pb::AdminRequest& request) = 0;
  virtual const Place& place() const = 0;

  // Answers the coordinator's requests from `chunk_store` until `finished` says
  // true; it is asked about twice a second. Ends at the first read that fails
  // otherwise than by kNotFound.
  virtual Result<void> serve(exchange::ChunkStore& chunk_store,
                             const std::function<Result<bool>()>& finished) = 0;
};

}  // namespace skerry::cli
