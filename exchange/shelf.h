// SPDX-License-Identifier: Apache-2.0
// Where an exchange's objects lie. perform() runs a job on one; ObjectShelf
// keeps whole objects durably (daemon, coordinator), FolderShelf keeps files in
// a folder, and parts of checkpoints as safetensors files (people's clients).
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

class Shelf {
 public:
  virtual ~Shelf() = default;
  virtual Result<std::vector<Hash>> open(const storage::NamedManifest& object,
                                         const std::vector<std::string>& parts) = 0;
  virtual Result<void> write(const Hash& object, const Hash& chunk, std::string_view bytes) = 0;
  virtual Result<void> seal(const Hash& object) = 0;
  // Of what is open: what was written so far.
  virtual Result<std::string> read(const Hash& object, const Hash& chunk) = 0;
  // kNotFound: not here, or not whole.
  virtual Result<void> find(const Hash& object) = 0;
};

// Thread rule: as the shelf's.
Answer perform(Shelf& shelf, const Job& job);

// Thread rule: as ObjectStore. Keeps objects whole: parts are not for it.
class ObjectShelf final : public Shelf {
 public:
  explicit ObjectShelf(storage::ObjectStore& objects) : objects_(objects) {}
  Result<std::vector<Hash>> open(const storage::NamedManifest& object,
                                 const std::vector<std::string>& parts) override;
  Result<void> write(const Hash& object, const Hash& chunk, std::string_view bytes) override;
  Result<void> seal(const Hash& object) override;
  Result<std::string> read(const Hash& object, const Hash& chunk) override;
  Result<void> find(const Hash& object) override;

 private:
  storage::ObjectStore& objects_;
};

// One thread at a time. What is received lies at FOLDER/<hex of the object>
// once it is sealed, and at that name + ".partial" before, from where an
// interrupted transfer goes on; the caller clears the folder up.
class FolderShelf final : public Shelf {
 public:
  // `folder` exists, or nothing is ever received.
  explicit FolderShelf(std::string folder) : folder_(std::move(folder)) {}
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
