// SPDX-License-Identifier: Apache-2.0
#include "protocol/validate.h"

#include <array>

#include "base/clean_text.h"
#include "protocol/fields.h"
#include "protocol/identity.h"
#include "protocol/limits.h"
#include "protocol/validate_parts.h"

namespace skerry::protocol {
namespace {

using namespace fields;

template <class Message>
Result<Message> parse(std::string_view what, std::string_view bytes, std::size_t limit) {
  if (bytes.size() > limit)
    return bad(what, text("at most ", limit, " bytes"), text(bytes.size(), " bytes"));
  Message message;
  if (!message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return fail(ErrorCode::kInvalid, text(what, ": not a message of this protocol"));
  }
  return message;
}

Error unknown_kind(std::string_view what) {
  return fail(ErrorCode::kInvalid, text(what, ": of a kind that this version does not know"));
}

Result<void> validate_error(const pb::Error& error) {
  TRY(text_at_most("error.code", error.code(), kNameBytes));
  return text_at_most("error.message", error.message(), 4 * kReasonBytes);
}

Result<void> validate_body(const pb::ControlRequest& request) {
  switch (request.body_case()) {
    case pb::ControlRequest::kHello:
      return parts::validate(request.hello());
    case pb::ControlRequest::kHeartbeat:
      return parts::validate(request.heartbeat());
    case pb::ControlRequest::kGetAssignment:
      return {};
    case pb::ControlRequest::kCommit:
      return parts::validate(request.commit());
    case pb::ControlRequest::kReturnLease:
      return parts::validate(request.return_lease());
    case pb::ControlRequest::kEngineReport:
      return parts::validate(request.engine_report());
    case pb::ControlRequest::kNodeLog:
      return parts::validate(request.node_log());
    case pb::ControlRequest::kAdmin:
      return parts::validate(request.admin());
    case pb::ControlRequest::BODY_NOT_SET:
      break;
  }
  return unknown_kind("control request");
}

Result<void> validate_body(const pb::ControlReply& reply) {
  switch (reply.body_case()) {
    case pb::ControlReply::kError:
      return validate_error(reply.error());
    case pb::ControlReply::kHello:
      return parts::validate(reply.hello());
    case pb::ControlReply::kHeartbeat:
      return parts::validate(reply.heartbeat());
    case pb::ControlReply::kAssignment:
      return parts::validate(reply.assignment());
    case pb::ControlReply::kCommit:
      return parts::validate(reply.commit());
    case pb::ControlReply::kAck:
      return {};
    case pb::ControlReply::kAdmin:
      return parts::validate(reply.admin());
    case pb::ControlReply::BODY_NOT_SET:
      break;
  }
  return unknown_kind("control reply");
}

Result<void> validate_reply(const pb::ChunkReply& reply) {
  TRY(length("chunk_reply.hash", reply.hash(), kKeyBytes));
  if (reply.data().size() > kChunkBytes) {
    return bad("chunk_reply.data", text("at most ", kChunkBytes, " bytes"),
               text(reply.data().size(), " bytes"));
  }
  if (reply.missing() && !reply.data().empty())
    return bad("chunk_reply.data", "nothing, as it is missing", "bytes");
  return {};
}

Result<void> validate_map(const pb::ChunkMap& map) {
  TRY(length("chunk_map.manifest", map.manifest(), kKeyBytes));
  if (map.whole() && (!map.bits().empty() || map.added_size() > 0)) {
    return bad("chunk_map.whole", "no single chunks beside it", "some");
  }
  TRY(text_at_most("chunk_map.bits", map.bits(), kMapBytes));
  TRY(count_at_most("chunk_map.added", map.added_size(), kMapAdded));
  for (const std::uint32_t chunk : map.added()) {
    TRY(in_range<std::size_t>("chunk_map.added", chunk, 0, 8 * kMapBytes - 1));
  }
  return {};
}

Result<void> validate_hello(const pb::BlobHello& hello) {
  if (!hello.has_certificate()) return {};
  TRY(text_at_most("blob_hello.certificate.body", hello.certificate().body(), kCertificateBytes));
  return length("blob_hello.certificate.signature", hello.certificate().signature(),
                kSignatureBytes);
}

Result<void> validate_body(const pb::BlobMessage& message) {
  switch (message.body_case()) {
    case pb::BlobMessage::kRequest:
      TRY(length("chunk_request.manifest", message.request().manifest(), kKeyBytes));
      return length("chunk_request.hash", message.request().hash(), kKeyBytes);
    case pb::BlobMessage::kReply:
      return validate_reply(message.reply());
    case pb::BlobMessage::kHello:
      return validate_hello(message.hello());
    case pb::BlobMessage::kMapRequest:
      return length("map_request.manifest", message.map_request().manifest(), kKeyBytes);
    case pb::BlobMessage::kMap:
      return validate_map(message.map());
    case pb::BlobMessage::kGossip:
      return text_at_most("gossip", message.gossip(),
                          kGossipMessageBytes);  // parse_gossip_message sees to the rest
    case pb::BlobMessage::BODY_NOT_SET:
      break;
  }
  return unknown_kind("blob message");
}

bool is_name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
}

}  // namespace

Result<void> validate_name(std::string_view name, std::string_view what) {
  bool good = !name.empty() && name.size() <= kNameBytes && name.front() != '.' &&
              name.front() != '_' && name.front() != '-';
  for (const char c : name) good = good && is_name_character(c);
  if (good) return {};
  return fail(ErrorCode::kInvalid,
              text(what,
                   ": expected lower-case letters, digits, '.', '_' and '-', beginning with a "
                   "letter or digit, at most ",
                   kNameBytes, " in all; found \"", name.substr(0, kNameBytes + 1), '"'));
}

Result<pb::EnrolRequest> parse_enrol_request(std::string_view bytes) {
  ASSIGN_OR_RETURN(pb::EnrolRequest request,
                   parse<pb::EnrolRequest>("enrol request", bytes, kEnrolMessageBytes));
  if (!compatible(request.version())) {
    return bad("version", text(kVersionMajor, ".", kVersionMinor, " or one minor version away"),
               text(request.version().major(), ".", request.version().minor()));
  }
  if (request.has_certificate()) {
    TRY(text_at_most("certificate.body", request.certificate().body(), kCertificateBytes));
    TRY(length("certificate.signature", request.certificate().signature(), kSignatureBytes));
  } else {
    TRY(validate_name(request.token_id(), "token id"));
    TRY(length("token_secret", request.token_secret(), kKeyBytes));
  }
  TRY(length("ed25519_key", request.ed25519_key(), kKeyBytes));
  TRY(length("signature", request.signature(), kSignatureBytes));
  if (!request.name().empty()) TRY(validate_name(request.name(), "node name"));
  return request;
}

Result<pb::EnrolReply> parse_enrol_reply(std::string_view bytes) {
  ASSIGN_OR_RETURN(pb::EnrolReply reply,
                   parse<pb::EnrolReply>("enrol reply", bytes, kControlMessageBytes));
  if (reply.has_error()) {
    TRY(validate_error(reply.error()));
  } else if (!reply.has_certificate()) {
    return bad("enrol reply", "an error or a certificate", "neither");
  }
  return reply;
}

Result<pb::ControlRequest> parse_control_request(std::string_view bytes) {
  ASSIGN_OR_RETURN(pb::ControlRequest request,
                   parse<pb::ControlRequest>("control request", bytes, kControlMessageBytes));
  TRY(validate_body(request));
  return request;
}

Result<pb::ControlReply> parse_control_reply(std::string_view bytes) {
  ASSIGN_OR_RETURN(pb::ControlReply reply,
                   parse<pb::ControlReply>("control reply", bytes, kControlMessageBytes));
  TRY(validate_body(reply));
  return reply;
}

Result<pb::BlobMessage> parse_blob_message(std::string_view bytes) {
  ASSIGN_OR_RETURN(pb::BlobMessage message,
                   parse<pb::BlobMessage>("blob message", bytes, kBlobMessageBytes));
  TRY(validate_body(message));
  return message;
}

pb::Version own_version() {
  pb::Version version;
  version.set_major(kVersionMajor);
  version.set_minor(kVersionMinor);
  return version;
}

bool compatible(const pb::Version& version) {
  const std::uint32_t low = std::min(version.minor(), kVersionMinor);
  const std::uint32_t high = std::max(version.minor(), kVersionMinor);
  return version.major() == kVersionMajor && high - low <= 1;
}

bool knows_gossip(const pb::Version& version) {
  return compatible(version) && version.minor() >= 1;
}

pb::Error to_message(const Error& error) {
  pb::Error message;
  message.set_code(to_string(error.code));
  message.set_message(clean_text(error.message, 4 * kReasonBytes));
  return message;
}

Error from_message(const pb::Error& error) {
  using enum ErrorCode;
  for (const ErrorCode code : {kInvalid, kNotFound, kConflict, kUnauthorised, kUnavailable,
                               kTimeout, kFenced, kExhausted, kCorrupt, kIo}) {
    if (error.code() == to_string(code)) return fail(code, error.message());
  }
  return fail(kInvalid, error.message());
}

}  // namespace skerry::protocol
