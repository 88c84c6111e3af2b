// SPDX-License-Identifier: Apache-2.0
// Where an exchange reads and writes chunks. perform() runs a job on one.
// ObjectChunkStore keeps whole objects durably, for coordinator and daemon.
// FolderChunkStore keeps files in a folder, and parts of checkpoints as
// safetensors files, for the command line.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include "exchange/jobs.h"
#include "storage/chunk_file.h"
#include "storage/object_store.h"

namespace skerry::exchange {

class ChunkStore {
 public:
  virtual ~ChunkStore() = default;
  virtual Result<std::vector<Hash>> open(const storage::NamedManifest& object,
                                         const std::vector<std::string>& parts) = 0;
  virtual Result<void> write(const Hash& object, const Hash& chunk, std::string_view bytes) = 0;
  virtual Result<void> seal(const Hash& object) = 0;
  // Of what is open: what was written so far.
  virtual Result<std::string> read(const Hash& object, const Hash& chunk) = 0;
  // kNotFound: not here, or not whole.
  virtual Result<void> find(const Hash& object) = 0;
};

// THREADS: as the chunk store's.
Answer perform(ChunkStore& chunk_store, const Job& job);

// Keeps objects whole, and refuses parts.
// THREADS: as ObjectStore.
class ObjectChunkStore final : public ChunkStore {
 public:
  explicit ObjectChunkStore(storage::ObjectStore& objects) : objects_(objects) {}
  Result<std::vector<Hash>> open(const storage::NamedManifest& object,
                                 const std::vector<std::string>& parts) override;
  Result<void> write(const Hash& object, const Hash& chunk, std::string_view bytes) override;
  Result<void> seal(const Hash& object) override;
  Result<std::string> read(const Hash& object, const Hash& chunk) override;
  Result<void> find(const Hash& object) override;

 private:
  storage::ObjectStore& objects_;
};

// Writes an object to FOLDER/<hex of the object>.partial, and renames it
// without the ending once it is sealed. An interrupted transfer goes on from
// the partial file. The caller clears the folder up.
// THREADS: one at a time.
class FolderChunkStore final : public ChunkStore {
 public:
  // `folder` exists, or nothing is ever received.
  explicit FolderChunkStore(std::string folder) : folder_(std::move(folder)) {}
  // Offers a file where it lies.
  Result<void> offer(const storage::NamedManifest& object, const std::string& path);
  std::string path_of(const Hash& object) const;

  Result<std::vector<Hash>> open(const storage::NamedManifest& object,
                                 const std::vector<std::string>& parts) override;
  Result<void> write(const Hash& object, const Hash& chunk, std::string_view bytes) override;
  Result<void> seal(const Hash& object) override;
  Result<std::string> read(const Hash& object, const Hash& chunk) override;
  Result<void> find(const Hash& object) override;

 private:
  struct Receiving {
    std::string manifest;
    std::unique_ptr<storage::ChunkWriter> writer;
    std::unordered_set<Hash> missing;
  };
  struct Offered {
    std::string manifest;
    std::string path;
    storage::Layout layout;
  };
  std::string folder_;
  std::map<Hash, Receiving> receiving_;
  std::map<Hash, Offered> offered_;
  std::pair<Hash, std::unique_ptr<storage::ChunkReader>>
      reader_;  // the file read last: files are asked for in turn
};

}  // namespace skerry::exchange
