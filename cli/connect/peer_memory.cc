// SPDX-License-Identifier: Apache-2.0
#include "cli/connect/peer_memory.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/text.h"
#include "gossip/gossip.h"

namespace skerry::cli {
namespace {

constexpr std::int64_t kEverySeconds = 60;
constexpr std::size_t kRemembered = 1;  // no check costs anything

// Those of ten thousand nodes would take a second.
gossip::SignatureChecks unchecked() {
  return {.of_key = [](auto...) { return true; },
          .of_certificate = [](const pb::Certificate& certificate, std::string_view,
                               std::int64_t) -> Result<pb::CertificateBody> {
            pb::CertificateBody body;
            if (!body.ParseFromString(certificate.body()))
              return fail(ErrorCode::kCorrupt, "no certificate");
            return body;
          }};
}

}  // namespace

std::string PeerMemory::read() const {
  std::ifstream file(path_, std::ios::binary);
  std::ostringstream bytes;
  bytes << file.rdbuf();
  return std::move(bytes).str();
}

void PeerMemory::write(const std::string& saved) const {
  const std::string fresh = text(path_, ".", ::getpid());
  std::error_code ignored;
  std::ofstream file(fresh, std::ios::binary);
  file << saved;
  file.close();
  if (file) std::filesystem::rename(fresh, path_, ignored);
  std::filesystem::remove(fresh, ignored);
}

bool PeerMemory::is_due(Now now) const {
  const std::filesystem::path folder = std::filesystem::path(path_).parent_path();
  if (::access(folder.empty() ? "." : folder.c_str(), W_OK) != 0) return false;
  struct stat status {};
  if (::stat(path_.c_str(), &status) != 0) return true;
  return std::abs(now.unix_ms / 1000 - status.st_mtim.tv_sec) >= kEverySeconds;
}

void PeerMemory::add(const std::string& peers, const std::string& coordinator_key, Now now) const {
  gossip::Verifier verifier(coordinator_key, kRemembered, unchecked());
  gossip::Table kept = gossip::load_table(read(), verifier, {}, now);
  gossip::load_table(peers, verifier, {}, now).for_each(now, [&](const gossip::Entry& entry) {
    kept.put(entry.record, gossip::Table::age(entry, now), now);
  });
  if (kept.size() > 0) write(gossip::save_table(kept, now));
}

}  // namespace skerry::cli
