// SPDX-License-Identifier: Apache-2.0
// What an exchange asks of the disk, and the disk's answers. The host runs the
// jobs of one object in order, on any thread, and hands each answer back. Every
// job has exactly one answer.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "base/hash.h"
#include "base/ids.h"
#include "base/result.h"
#include "storage/manifest.h"

namespace skerry::exchange {

// The other side of a blob connection: the id that the transport proved, or the
// host's name for a peer that has none.
using PeerId = NodeId;

struct OpenObject {
  storage::NamedManifest object;
  std::vector<std::string> parts;  // none: all
};
// The bytes are what the hash says.
struct WriteChunk {
  Hash object;
  Hash chunk;
  std::string bytes;
};
struct SealObject {
  Hash object;
};
// chunk == object asks for the manifest. Of an object that is being received:
// what has come so far.
struct ReadChunk {
  PeerId peer;
  std::uint64_t request = 0;
  Hash object;
  Hash chunk;
};
// Is it here, whole?
struct FindObject {
  PeerId peer;
  Hash object;
};
using Job = std::variant<OpenObject, WriteChunk, SealObject, ReadChunk, FindObject>;

struct ObjectOpened {
  Hash object;
  Result<std::vector<Hash>> present;  // chunks that need not be fetched
};
struct ChunkWritten {
  Hash object;
  Hash chunk;
  Result<void> outcome;
};
struct ObjectSealed {
  Hash object;
  Result<void> outcome;
};
struct ChunkRead {
  PeerId peer;
  std::uint64_t request = 0;
  Hash object;
  Hash chunk;
  Result<std::string> bytes;
};
struct ObjectFound {
  PeerId peer;
  Hash object;
  Result<void> outcome;
};
using Answer = std::variant<ObjectOpened, ChunkWritten, ObjectSealed, ChunkRead, ObjectFound>;

// The answer to a job that is not run: the peer may not read this, the disk is
// failing.
Answer refuse(const Job& job, const Error& error);

}  // namespace skerry::exchange
