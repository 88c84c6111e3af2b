// SPDX-License-Identifier: Apache-2.0
// Serialises messages with maps in a fixed order. Protobuf promises equal bytes
// for equal messages only on request. It belongs to skerry_stored_messages,
// since no header of skerry_storage includes protobuf.
#pragma once

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/message_lite.h>

#include <string>

namespace skerry::storage {

// RETURNS: equal bytes for equal messages, also with maps.
inline std::string serialise_in_order(const google::protobuf::MessageLite& message) {
  std::string bytes;
  google::protobuf::io::StringOutputStream stream(&bytes);
  google::protobuf::io::CodedOutputStream out(&stream);
  out.SetSerializationDeterministic(true);
  message.SerializeToCodedStream(&out);
  out.Trim();
  return bytes;
}

}  // namespace skerry::storage
