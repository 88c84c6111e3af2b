// SPDX-License-Identifier: Apache-2.0
// Who a node, a person or the coordinator is: one Ed25519 seed. Its public key
// signs what outlives a connection, the X25519 form of the same key is the
// CURVE key of its connections, and the node's id is the hash of the Ed25519
// key.
//
// Keys, seeds and signatures are raw bytes in std::string. Values are
// immutable: safe from any thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "base/ids.h"
#include "base/result.h"
#include "protocol/skerry.pb.h"

namespace skerry::protocol {

inline constexpr std::size_t kKeyBytes = 32;
inline constexpr std::size_t kSignatureBytes = 64;

// What a signature is for; a signature for one purpose is worth nothing for
// another.
inline constexpr std::string_view kEnrolDomain = "skerry enrol 1";
inline constexpr std::string_view kCertificateDomain = "skerry certificate 1";
inline constexpr std::string_view kRecordDomain = "skerry record 1";

// In whose name records are signed. Besides an Identity there is a
// simulation's, which costs less (tests/simulation/authority.h).
class Signer {
 public:
  virtual ~Signer() = default;
  virtual const std::string& ed25519_key() const = 0;
  virtual NodeId node_id() const = 0;
  virtual std::string sign(std::string_view domain, std::string_view bytes) const = 0;
};

// A seed's two key pairs.
class Identity final : public Signer {
 public:
  static Identity generate();
  // Fails unless the seed has 32 bytes.
  static Result<Identity> from_seed(std::string_view seed);
  // Reads the file that load_or_create wrote. kNotFound where there is none,
  // kCorrupt where it is not one. A file that others can read is used, with a
  // warning in the log.
  static Result<Identity> load(const std::filesystem::path& path);
  // As load; where there is no file, generates and writes one (mode 0600,
  // atomically, synced with its folder).
  static Result<Identity> load_or_create(const std::filesystem::path& path);

  const std::string& seed() const { return seed_; }
  const std::string& ed25519_key() const override { return ed25519_key_; }
  const std::string& x25519_key() const { return x25519_key_; }        // raw CURVE public key
  const std::string& x25519_secret() const { return x25519_secret_; }  // raw CURVE secret key
  NodeId node_id() const override;

  // Ed25519 over domain + bytes.
  std::string sign(std::string_view domain, std::string_view bytes) const override;

 private:
  Identity() = default;
  std::string seed_;
  std::string ed25519_key_;
  std::string ed25519_secret_;
  std::string x25519_key_;
  std::string x25519_secret_;
};

// The first 32 hex digits of BLAKE2b-256 of the key.
NodeId node_id(std::string_view ed25519_key);
// The CURVE key that belongs to an Ed25519 key. Fails where the bytes are no
// such key.
Result<std::string> x25519_of(std::string_view ed25519_key);
bool verify_signature(std::string_view ed25519_key, std::string_view domain, std::string_view bytes,
                      std::string_view signature);

// Signs `body` as the coordinator's word: fills version, node id, x25519 key
// and coordinator key from the keys; role, name and times are the caller's.
// REQUIRES: body.ed25519_key is a valid key (check_enrol_request has seen to
// it).
pb::Certificate issue_certificate(const Identity& coordinator, pb::CertificateBody body);

// The body, if the coordinator's signature is right, the keys and id belong
// together and `now_unix_ms` lies before its expiry. kCorrupt or kUnauthorised
// with what is wrong otherwise.
Result<pb::CertificateBody> verify_certificate(const pb::Certificate& certificate,
                                               std::string_view coordinator_key,
                                               std::int64_t now_unix_ms);

}  // namespace skerry::protocol
