// SPDX-License-Identifier: Apache-2.0
// Files as chunks: a ChunkWriter receives a file in any order and across
// restarts, a ChunkReader serves one.
//
// LIFETIME: the Files outlive both.
// ON FAILURE: as files.h.
// THREADS: a ChunkWriter belongs to one thread at a time, except read(). Many
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

// A file named PATH.partial until commit() renames it. If the writer is
// destroyed before, the file stays and the next open() resumes it.
class ChunkWriter {
 public:
  static Result<ChunkWriter> open(const std::string& path, Layout layout,
                                  Files& files = posix_files());
  // RETURNS: the intact chunks that an earlier process left behind. Reads the
  // whole file unless it is new; skips chunks that cannot be read.
  std::vector<Hash> present() const;
  // Writes the chunk to each of its places.
  // REQUIRES: blake2b(bytes) == hash.
  // ON FAILURE: kInvalid: not a chunk of this file.
  Result<void> put(const Hash& hash, std::string_view bytes);
  // RETURNS: a chunk that was put or present.
  // THREADS: any, at any moment.
  // ON FAILURE: kNotFound: not a chunk of this file, or not there yet.
  Result<std::string> read(const Hash& hash) const;
  // Makes the file durable under its name; afterwards only read() may follow.
  // REQUIRES: every chunk was put or present.
  Result<void> commit();
  // Removes the partial file, if there is one.
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

// A file on disk with its known layout. It checks each chunk that it reads and
// refuses a damaged one.
class ChunkReader {
 public:
  static Result<ChunkReader> open(const std::string& path, const Layout& layout,
                                  Files& files = posix_files());
  // ON FAILURE: kNotFound: not a chunk of this file. kCorrupt: the file holds
  // other bytes now.
  Result<std::string> read(const Hash& hash) const;
  // RETURNS: several chunks in the given order; fails if one fails.
  Result<std::vector<std::string>> read_each(std::span<const Hash> hashes) const;
  // Checks the bytes before the first chunk.
  Result<void> check_prefix(const Layout& layout) const;
  // Checks several chunks, at each place of the file where they stand, without
  // returning them. `scratch` is kept from call to call; each thread has its
  // own.
  Result<void> check_each(std::span<const Hash> hashes, std::vector<char>& scratch) const;

 private:
  // At least one, in the order of the file.
  Result<std::span<const Placement>> places_of(const Hash& hash) const;
  ChunkReader(std::string path, std::unique_ptr<File> file)
      : path_(std::move(path)), file_(std::move(file)) {}
  std::string path_;
  std::unordered_map<Hash, std::vector<Placement>> by_hash_;
  std::unique_ptr<File> file_;
};

}  // namespace skerry::storage
