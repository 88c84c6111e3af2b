// SPDX-License-Identifier: Apache-2.0
#include "storage/manifest.h"

#include <algorithm>
#include <unordered_set>

#include "base/text.h"
#include "storage/manifest.pb.h"
#include "storage/manifest_check.h"
#include "storage/serialise_in_order.h"

namespace skerry::storage {
namespace {

constexpr std::uint32_t kVersion = 1;

Error corrupt(const std::string& what) { return fail(ErrorCode::kCorrupt, "manifest: " + what); }

void write_chunks(const std::vector<Chunk>& chunks,
                  google::protobuf::RepeatedPtrField<stored::ManifestChunk>& out) {
  for (const Chunk& chunk : chunks) {
    stored::ManifestChunk& written = *out.Add();
    written.set_hash(chunk.hash.raw());
    written.set_bytes(chunk.bytes);
  }
}

stored::Manifest to_message(const Manifest& manifest) {
  stored::Manifest out;
  out.set_version(kVersion);
  const bool checkpoint = manifest.kind == ManifestKind::kCheckpoint;
  out.set_kind(checkpoint ? stored::Manifest::KIND_CHECKPOINT : stored::Manifest::KIND_FILE);
  out.set_name(manifest.name);
  out.set_run(manifest.run.str());
  out.set_expert(manifest.expert);
  out.set_step(manifest.step);
  out.set_from_step(manifest.from_step);
  out.set_epoch(manifest.epoch.value());
  out.set_attempt(manifest.attempt);
  if (manifest.parent) out.set_parent(manifest.parent->raw());
  out.set_fingerprint(manifest.fingerprint);
  if (manifest.spec) out.set_spec(manifest.spec->raw());
  for (const auto& [key, value] : manifest.metadata) {
    stored::ManifestEntry& entry = *out.add_metadata();
    entry.set_key(key);
    entry.set_value(value);
  }
  for (const ManifestPart& part : manifest.parts) {
    stored::ManifestPart& written = *out.add_parts();
    written.set_name(part.name);
    write_chunks(part.chunks, *written.mutable_chunks());
    for (const ManifestTensor& tensor : part.tensors) {
      stored::ManifestTensor& out_tensor = *written.add_tensors();
      out_tensor.set_name(tensor.name);
      out_tensor.set_dtype(std::string(name_of(tensor.dtype)));
      out_tensor.mutable_shape()->Add(tensor.shape.begin(), tensor.shape.end());
      out_tensor.set_position(tensor.position);
      write_chunks(tensor.chunks, *out_tensor.mutable_chunks());
    }
  }
  return out;
}

Result<std::vector<Chunk>> read_chunks(
    const google::protobuf::RepeatedPtrField<stored::ManifestChunk>& chunks) {
  std::vector<Chunk> out;
  out.reserve(static_cast<std::size_t>(chunks.size()));
  for (const stored::ManifestChunk& chunk : chunks) {
    const auto hash = Hash::from_raw(chunk.hash());
    if (!hash) return corrupt("a chunk's hash is not 32 bytes");
    out.push_back({*hash, chunk.bytes()});
  }
  return out;
}

Result<std::optional<Hash>> read_optional_hash(const std::string& raw) {
  if (raw.empty()) return std::optional<Hash>();
  const auto hash = Hash::from_raw(raw);
  if (!hash) return corrupt("a hash is not 32 bytes");
  return std::optional(*hash);
}

Result<ManifestPart> read_part(const stored::ManifestPart& part) {
  ManifestPart out;
  out.name = part.name();
  ASSIGN_OR_RETURN(out.chunks, read_chunks(part.chunks()));
  for (const stored::ManifestTensor& tensor : part.tensors()) {
    ManifestTensor& read = out.tensors.emplace_back();
    read.name = tensor.name();
    const auto dtype = parse_dtype(tensor.dtype());
    if (!dtype) return corrupt(dtype.error().message);
    read.dtype = *dtype;
    read.shape.assign(tensor.shape().begin(), tensor.shape().end());
    read.position = tensor.position();
    ASSIGN_OR_RETURN(read.chunks, read_chunks(tensor.chunks()));
  }
  return out;
}

Result<Manifest> from_message(const stored::Manifest& message) {
  if (message.version() != kVersion) {
    return fail(ErrorCode::kInvalid,
                text("manifest of version ", message.version(), "; this program knows ", kVersion));
  }
  const bool checkpoint = message.kind() == stored::Manifest::KIND_CHECKPOINT;
  if (!checkpoint && message.kind() != stored::Manifest::KIND_FILE)
    return corrupt("unknown kind of object");
  Manifest out;
  out.kind = checkpoint ? ManifestKind::kCheckpoint : ManifestKind::kFile;
  out.name = message.name();
  out.run = RunId(message.run());
  out.expert = message.expert();
  out.step = message.step();
  out.from_step = message.from_step();
  out.epoch = Epoch(message.epoch());
  out.attempt = message.attempt();
  ASSIGN_OR_RETURN(out.parent, read_optional_hash(message.parent()));
  out.fingerprint = message.fingerprint();
  ASSIGN_OR_RETURN(out.spec, read_optional_hash(message.spec()));
  for (const stored::ManifestEntry& entry : message.metadata()) {
    if (!out.metadata.emplace(entry.key(), entry.value()).second)
      return corrupt("metadata names a key twice");
  }
  for (const stored::ManifestPart& part : message.parts()) {
    ASSIGN_OR_RETURN(ManifestPart read, read_part(part));
    out.parts.push_back(std::move(read));
  }
  return out;
}

std::uint64_t sum_of(const std::vector<Chunk>& chunks) {
  std::uint64_t sum = 0;
  for (const Chunk& chunk : chunks) sum += chunk.bytes;
  return sum;
}

}  // namespace

const ManifestPart* Manifest::part(std::string_view part_name) const {
  const auto found = std::find_if(parts.begin(), parts.end(),
                                  [&](const ManifestPart& p) { return p.name == part_name; });
  return found == parts.end() ? nullptr : &*found;
}

std::uint64_t Manifest::bytes() const {
  std::uint64_t sum = 0;
  for (const ManifestPart& part : parts) {
    sum += sum_of(part.chunks);
    for (const ManifestTensor& tensor : part.tensors) sum += sum_of(tensor.chunks);
  }
  return sum;
}

Result<NamedManifest> encode_manifest(Manifest manifest) {
  TRY(check_manifest(manifest));
  NamedManifest named;
  named.encoded = serialise_in_order(to_message(manifest));
  if (named.encoded.size() > kMaxManifestBytes) {
    return fail(ErrorCode::kInvalid,
                text("a manifest of ", human_bytes(named.encoded.size()), "; at most ",
                     human_bytes(kMaxManifestBytes), " are allowed"));
  }
  named.name = blake2b(named.encoded);
  named.manifest = std::move(manifest);
  return named;
}

Result<NamedManifest> decode_manifest(std::string encoded) {
  if (encoded.size() > kMaxManifestBytes) return corrupt("more than 4 MiB");
  stored::Manifest message;
  if (!message.ParseFromString(encoded)) return corrupt("the bytes are not a manifest");
  NamedManifest named;
  ASSIGN_OR_RETURN(named.manifest, from_message(message));
  TRY(check_manifest(named.manifest));
  named.name = blake2b(encoded);
  named.encoded = std::move(encoded);
  return named;
}

std::vector<Chunk> distinct_chunks(const Manifest& manifest,
                                   const std::vector<std::string>& parts) {
  std::vector<Chunk> chunks;
  std::unordered_set<Hash> seen;
  const auto add = [&](const std::vector<Chunk>& listed) {
    for (const Chunk& chunk : listed) {
      if (seen.insert(chunk.hash).second) chunks.push_back(chunk);
    }
  };
  for (const ManifestPart& part : manifest.parts) {
    if (!parts.empty() && std::find(parts.begin(), parts.end(), part.name) == parts.end()) continue;
    add(part.chunks);
    for (const ManifestTensor& tensor : part.tensors) add(tensor.chunks);
  }
  return chunks;
}

}  // namespace skerry::storage
