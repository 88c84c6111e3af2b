// SPDX-License-Identifier: Apache-2.0
// The identity of a node, a person or the coordinator: one Ed25519 seed. Its
// public key signs records and certificates, which outlive a connection. The
// X25519 form of the same key is the CURVE key of its connections. The node's
// id is a hash of the Ed25519 key.
//
// Keys, seeds and signatures are raw bytes in std::string.
// THREADS: any; values are immutable.
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

// The purpose of a signature. A signature for one purpose is invalid for
// another.
inline constexpr std::string_view kEnrolDomain = "skerry enrol 1";
inline constexpr std::string_view kCertificateDomain = "skerry certificate 1";
inline constexpr std::string_view kRecordDomain = "skerry record 1";

// Signs records in one name. Besides Identity, simulations have a cheaper one
// (tests/simulation/authority.h).
class Signer {
 public:
  virtual ~Signer() = default;
  virtual const std::string& ed25519_key() const = 0;
  virtual NodeId node_id() const = 0;
  virtual std::string sign(std::string_view domain, std::string_view bytes) const = 0;
};

// The two key pairs of a seed.
class Identity final : public Signer {
 public:
  static Identity generate();
  // Fails unless the seed has 32 bytes.
  static Result<Identity> from_seed(std::string_view seed);
  // Reads the file that load_or_create() wrote. If others can read the file,
  // logs a warning and uses it.
  // ON FAILURE: kNotFound if there is no file, kInvalid if it is no identity.
  static Result<Identity> load(const std::filesystem::path& path);
  // As load(). If there is no file, generates an identity and writes it: mode
  // 0600, atomically, synced with its folder.
  static Result<Identity> load_or_create(const std::filesystem::path& path);

  const std::string& seed() const { return seed_; }
  const std::string& ed25519_key() const override { return ed25519_key_; }
  const std::string& x25519_key() const { return x25519_key_; }        // raw CURVE public key
  const std::string& x25519_secret() const { return x25519_secret_; }  // raw CURVE secret key
  NodeId node_id() const override;

  // An Ed25519 signature over domain + bytes.
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
// RETURNS: the CURVE key that belongs to an Ed25519 key. Fails if the bytes are
// no such key.
Result<std::string> x25519_of(std::string_view ed25519_key);
bool verify_signature(std::string_view ed25519_key, std::string_view domain, std::string_view bytes,
                      std::string_view signature);

// Signs `body` as the coordinator. Fills in version, node id, x25519 key and
// coordinator key; the caller sets role, name and times.
// REQUIRES: body.ed25519_key is a valid key (check_enrol_request() checks it).
pb::Certificate issue_certificate(const Identity& coordinator, pb::CertificateBody body);

// RETURNS: the body, if the coordinator signed it, its keys and id belong
// together, and `now_unix_ms` is before its expiry.
// ON FAILURE: kCorrupt or kUnauthorised, with the reason.
Result<pb::CertificateBody> verify_certificate(const pb::Certificate& certificate,
                                               std::string_view coordinator_key,
                                               std::int64_t now_unix_ms);

}  // namespace skerry::protocol
