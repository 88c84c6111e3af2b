// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/sane.h"

#include <google/protobuf/descriptor.h>

#include <cmath>

#include "protocol/limits.h"

namespace skerry::fuzz {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

constexpr std::size_t kHashBytes = 32;

// One value of a field, single or of a list.
struct Value {
  const Message& message;
  const FieldDescriptor& field;
  int index;  // −1: single

  template <class Single, class Repeated>
  auto read(Single single, Repeated repeated) const {
    const Reflection& reflection = *message.GetReflection();
    return index < 0 ? (reflection.*single)(message, &field)
                     : (reflection.*repeated)(message, &field, index);
  }
};

bool is_hash(std::string_view name) {
  return name == "hash" || name == "manifest" || name == "parent" || name == "head" ||
         name == "checkpoint" || name == "ed25519_key" || name == "token_secret" ||
         name == "secret";
}

void check_number(const Value& value) {
  const double number = value.field.cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE
                            ? value.read(&Reflection::GetDouble, &Reflection::GetRepeatedDouble)
                            : value.read(&Reflection::GetFloat, &Reflection::GetRepeatedFloat);
  SKERRY_CHECK(std::isfinite(number), value.field.full_name(), " is ", number);
}

void check_bytes(const Value& value) {
  if (value.field.type() != FieldDescriptor::TYPE_BYTES || !is_hash(value.field.name())) return;
  const std::string bytes = value.read(&Reflection::GetString, &Reflection::GetRepeatedString);
  SKERRY_CHECK(bytes.empty() || bytes.size() == kHashBytes, value.field.full_name(), " has ",
               bytes.size(), " bytes");
}

void check_value(const Value& value) {
  switch (value.field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_DOUBLE:
    case FieldDescriptor::CPPTYPE_FLOAT:
      return check_number(value);
    case FieldDescriptor::CPPTYPE_STRING:
      return check_bytes(value);
    case FieldDescriptor::CPPTYPE_ENUM: {
      const int number = value.read(&Reflection::GetEnumValue, &Reflection::GetRepeatedEnumValue);
      SKERRY_CHECK(value.field.enum_type()->FindValueByNumber(number) != nullptr,
                   value.field.full_name(), " is ", number);
      return;
    }
    case FieldDescriptor::CPPTYPE_MESSAGE: {
      const Reflection& reflection = *value.message.GetReflection();
      return check_sane(value.index < 0 ? reflection.GetMessage(value.message, &value.field)
                                        : reflection.GetRepeatedMessage(value.message, &value.field,
                                                                        value.index));
    }
    default:
      return;
  }
}

}  // namespace

void check_sane(const Message& message) {
  std::vector<const FieldDescriptor*> set;
  message.GetReflection()->ListFields(message, &set);
  for (const FieldDescriptor* field : set) {
    if (!field->is_repeated()) {
      check_value({message, *field, -1});
      continue;
    }
    for (int i = 0; i < message.GetReflection()->FieldSize(message, field); ++i)
      check_value({message, *field, i});
  }
}

}  // namespace skerry::fuzz
