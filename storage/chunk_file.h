// SPDX-License-Identifier: Apache-2.0
// Files as chunks: one that is being received, in any order and over restarts,
// and one that is served.
//
// LIFETIME: the Files outlive both.
// ON FAILURE: as files.h.
// THREADS: a ChunkWriter belongs to one thread at a time, but for read(). Many
// may read a ChunkReader.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "base/result.h"
#include "storage/files.h"
#include "storage/layout.h"

namespace skerry::storage {

// PATH.partial, until commit() gives it its name. Destroyed before, it stays,
// for the next open() to go on with.
class ChunkWriter {
 public:
  static Result<ChunkWriter> open(const std::string& path, Layout layout,
                                  Files& files = posix_files());
  // The chunks that an earlier life left behind intact; reads the whole file
  // unless it is new. A chunk that cannot be read is not among them.
  std::vector<Hash> present() const;
  // Writes the chunk everywhere it belongs. REQUIRES: blake2b(bytes) == hash.
  // kInvalid: not of this file.
  Result<void> put(const Hash& hash, std::string_view bytes);
  // What was put or present; at any moment and from any thread. kNotFound: not
  // of this file, or not there yet.
  Result<std::string> read(const Hash& hash) const;
  // REQUIRES: every chunk was put or present. Durable under its name on return;
  // only read() may follow.
  Result<void> commit();
  // The partial file, if there is one.
  static Result<void> discard(const std::string& path, Files& files = posix_files());

 private:
  ChunkWriter(std::string path, Layout layout, std::unique_ptr<File> file, Files& files,
              bool is_new);
  std::string path_;
  Layout layout_;
  std::unordered_map<Hash, std::vector<std::size_t>> by_hash_;  // into layout_.placements
  std::unique_ptr<File> file_;
  Files* files_;
  bool is_new_ = false;
};

// A file on disk with the layout that it is known by. Each chunk is checked as
// it is read: a damaged one is refused.
class ChunkReader {
 public:
  static Result<ChunkReader> open(const std::string& path, const Layout& layout,
                                  Files& files = posix_files());
  // kNotFound: not of this file. kCorrupt: the file holds other bytes now.
  Result<std::string> read(const Hash& hash) const;
  // The same of several, in their order; the first that fails fails all.
  Result<std::vector<std::string>> read_each(std::span<const Hash> hashes) const;
  // The same for who wants no bytes; `scratch`, each thread its own, is kept
  // from call to call.
  Result<void> check_each(std::span<const Hash> hashes, std::vector<char>& scratch) const;

 private:
  Result<Placement> place_of(const Hash& hash) const;
  ChunkReader(std::string path, std::unique_ptr<File> file)
      : path_(std::move(path)), file_(std::move(file)) {}
  std::string path_;
  std::unordered_map<Hash, Placement> by_hash_;
  std::unique_ptr<File> file_;
};

}  // namespace skerry::storage
