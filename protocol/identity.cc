// SPDX-License-Identifier: Apache-2.0
#include "protocol/identity.h"

#include <sodium.h>

#include "base/check.h"
#include "base/hash.h"
#include "protocol/secret_file.h"

namespace skerry::protocol {
namespace {

static_assert(kKeyBytes == crypto_sign_PUBLICKEYBYTES);
static_assert(kKeyBytes == crypto_sign_SEEDBYTES);
static_assert(kKeyBytes == crypto_box_PUBLICKEYBYTES);
static_assert(kSignatureBytes == crypto_sign_BYTES);

constexpr std::string_view kFileHeader = "skerry-identity-1 ";
constexpr std::uint32_t kCertificateVersion = 1;

const unsigned char* in(std::string_view bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}
unsigned char* out(std::string& bytes) { return reinterpret_cast<unsigned char*>(bytes.data()); }

void start_sodium() {
  SKERRY_CHECK(sodium_init() >= 0, "libsodium found no source of random numbers");
}

std::string join(std::string_view domain, std::string_view bytes) {
  return std::string(domain).append(bytes);
}

Result<Identity> parse_identity(std::string_view content, const std::filesystem::path& path) {
  while (!content.empty() && content.back() == '\n') content.remove_suffix(1);
  if (content.starts_with(kFileHeader)) {
    if (auto seed = from_hex(content.substr(kFileHeader.size()))) {
      if (auto identity = Identity::from_seed(*seed)) return identity;
    }
  }
  return fail(
      ErrorCode::kInvalid,
      text(path.string(), " is not an identity file: expected \"", kFileHeader,
           "\" and 64 hexadecimal digits, found ", content.size(),
           " other bytes; put back a copy of it, since others know this machine by its key"));
}

}  // namespace

Identity Identity::generate() {
  start_sodium();
  std::string seed(kKeyBytes, '\0');
  randombytes_buf(seed.data(), seed.size());
  return *from_seed(seed);
}

Result<Identity> Identity::from_seed(std::string_view seed) {
  start_sodium();
  if (seed.size() != kKeyBytes) {
    return fail(ErrorCode::kInvalid, text("an identity's seed has 32 bytes, found ", seed.size()));
  }
  Identity identity;
  identity.seed_ = seed;
  identity.ed25519_key_.resize(kKeyBytes);
  identity.ed25519_secret_.resize(crypto_sign_SECRETKEYBYTES);
  identity.x25519_key_.resize(kKeyBytes);
  identity.x25519_secret_.resize(kKeyBytes);
  crypto_sign_seed_keypair(out(identity.ed25519_key_), out(identity.ed25519_secret_), in(seed));
  SKERRY_CHECK(crypto_sign_ed25519_pk_to_curve25519(out(identity.x25519_key_),
                                                    in(identity.ed25519_key_)) == 0 &&
                   crypto_sign_ed25519_sk_to_curve25519(out(identity.x25519_secret_),
                                                        in(identity.ed25519_secret_)) == 0,
               "a generated key has an X25519 form");
  return identity;
}

Result<Identity> Identity::load(const std::filesystem::path& path) {
  ASSIGN_OR_RETURN(const std::string content, read_secret_file(path));
  return parse_identity(content, path);
}

Result<Identity> Identity::load_or_create(const std::filesystem::path& path) {
  auto loaded = load(path);
  if (loaded || loaded.error().code != ErrorCode::kNotFound) return loaded;
  Identity identity = generate();
  TRY(write_secret_file(path, text(kFileHeader, to_hex(identity.seed()), '\n')));
  return identity;
}

NodeId Identity::node_id() const { return protocol::node_id(ed25519_key_); }

std::string Identity::sign(std::string_view domain, std::string_view bytes) const {
  const std::string message = join(domain, bytes);
  std::string signature(kSignatureBytes, '\0');
  crypto_sign_detached(out(signature), nullptr, in(message), message.size(), in(ed25519_secret_));
  return signature;
}

NodeId node_id(std::string_view ed25519_key) {
  return NodeId(blake2b(ed25519_key).hex().substr(0, 32));
}

Result<std::string> x25519_of(std::string_view ed25519_key) {
  std::string key(kKeyBytes, '\0');
  if (ed25519_key.size() != kKeyBytes ||
      crypto_sign_ed25519_pk_to_curve25519(out(key), in(ed25519_key)) != 0) {
    return fail(ErrorCode::kInvalid, "not an Ed25519 key");
  }
  return key;
}

bool verify_signature(std::string_view ed25519_key, std::string_view domain, std::string_view bytes,
                      std::string_view signature) {
  if (ed25519_key.size() != kKeyBytes || signature.size() != kSignatureBytes) return false;
  const std::string message = join(domain, bytes);
  return crypto_sign_verify_detached(in(signature), in(message), message.size(), in(ed25519_key)) ==
         0;
}

pb::Certificate issue_certificate(const Identity& coordinator, pb::CertificateBody body) {
  auto x25519 = x25519_of(body.ed25519_key());
  SKERRY_CHECK(x25519.has_value(), "a certificate is issued for a checked key");
  body.set_version(kCertificateVersion);
  body.set_node_id(node_id(body.ed25519_key()).str());
  body.set_x25519_key(*x25519);
  body.set_coordinator_key(coordinator.ed25519_key());
  pb::Certificate certificate;
  certificate.set_body(body.SerializeAsString());
  certificate.set_signature(coordinator.sign(kCertificateDomain, certificate.body()));
  return certificate;
}

Result<pb::CertificateBody> verify_certificate(const pb::Certificate& certificate,
                                               std::string_view coordinator_key,
                                               std::int64_t now_unix_ms) {
  if (!verify_signature(coordinator_key, kCertificateDomain, certificate.body(),
                        certificate.signature())) {
    return fail(ErrorCode::kUnauthorised, "certificate: not signed by this coordinator");
  }
  pb::CertificateBody body;
  if (!body.ParseFromString(certificate.body()) || body.version() != kCertificateVersion) {
    return fail(ErrorCode::kCorrupt, "certificate: of a version that is not known here");
  }
  const auto x25519 = x25519_of(body.ed25519_key());
  const bool own_id = node_id(body.ed25519_key()).str() == body.node_id();
  if (!x25519 || *x25519 != body.x25519_key() || !own_id ||
      body.coordinator_key() != coordinator_key) {
    return fail(ErrorCode::kCorrupt, "certificate: its keys and its id do not belong together");
  }
  if (!pb::Role_IsValid(body.role())) {
    return fail(ErrorCode::kCorrupt, "certificate: of a role that is not known here");
  }
  if (now_unix_ms >= body.expires_unix_ms()) {
    return fail(ErrorCode::kUnauthorised,
                text("certificate: expired at ", utc_time(body.expires_unix_ms())));
  }
  return body;
}

}  // namespace skerry::protocol
