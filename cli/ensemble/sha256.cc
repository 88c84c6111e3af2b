// SPDX-License-Identifier: Apache-2.0
#include "cli/ensemble/sha256.h"

#include <sodium.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "base/text.h"
#include "storage/files.h"

namespace skerry::cli {
namespace {

constexpr std::size_t kBlock = 1 << 20;
constexpr auto kName = "SHA256SUMS";

}  // namespace

Result<std::string> sha256_of_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return fail(ErrorCode::kIo, text("cannot read ", path));
  crypto_hash_sha256_state state;
  crypto_hash_sha256_init(&state);
  std::string block(kBlock, '\0');
  while (file.read(block.data(), static_cast<std::streamsize>(block.size())) || file.gcount() > 0) {
    crypto_hash_sha256_update(&state, reinterpret_cast<const unsigned char*>(block.data()),
                              static_cast<unsigned long long>(file.gcount()));
  }
  if (file.bad()) return fail(ErrorCode::kIo, text("cannot read ", path));
  std::string sum(crypto_hash_sha256_BYTES, '\0');
  crypto_hash_sha256_final(&state, reinterpret_cast<unsigned char*>(sum.data()));
  return to_hex(sum);
}

Result<void> write_sha256sums(const std::string& folder) {
  namespace fs = std::filesystem;
  std::vector<std::string> names;
  std::error_code error;
  for (fs::recursive_directory_iterator at(folder, error), end; !error && at != end;
       at.increment(error)) {
    if (at->is_regular_file()) names.push_back(fs::relative(at->path(), folder).generic_string());
  }
  if (error) return fail(ErrorCode::kIo, text("cannot list ", folder, ": ", error.message()));
  std::sort(names.begin(), names.end());
  std::string lines;
  for (const std::string& name : names) {
    if (name == kName) continue;
    ASSIGN_OR_RETURN(const std::string sum, sha256_of_file(folder + "/" + name));
    lines += text(sum, "  ", name, "\n");
  }
  ASSIGN_OR_RETURN(storage::PartialFile file,
                   storage::PartialFile::create(text(folder, "/", kName)));
  TRY(file.append(lines));
  return file.commit();
}

}  // namespace skerry::cli
