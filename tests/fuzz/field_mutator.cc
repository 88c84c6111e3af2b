// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/field_mutator.h"

#include <google/protobuf/unknown_field_set.h>

#include <array>
#include <bit>
#include <cstdint>
#include <limits>

namespace skerry::fuzz {
namespace {

using google::protobuf::UnknownField;
using google::protobuf::UnknownFieldSet;

constexpr int kDeepest = 8;
constexpr unsigned kFieldNumbers = 16;

class FieldMutator {
 public:
  FieldMutator(std::minstd_rand& random, const MutateBytes& bytes)
      : random_(random), bytes_(bytes) {}

  void mutate(UnknownFieldSet& fields) {
    if (fields.empty()) return add(fields);
    mutate(fields, below(count(fields, 0)), 0);
  }

 private:
  // False: it has no fields, or is deeper than anybody looks.
  static bool open(const UnknownField& field, int depth, UnknownFieldSet& inner) {
    return field.type() == UnknownField::TYPE_LENGTH_DELIMITED && depth < kDeepest &&
           !field.length_delimited().empty() && inner.ParseFromString(field.length_delimited());
  }

  static unsigned count(const UnknownFieldSet& fields, int depth) {
    unsigned sum = 0;
    for (int i = 0; i < fields.field_count(); ++i) {
      UnknownFieldSet inner;
      sum += 1 + (open(fields.field(i), depth, inner) ? count(inner, depth + 1) : 0);
    }
    return sum;
  }

  // Each field is as likely as any other, however deep it lies. REQUIRES:
  // number < count(fields).
  void mutate(UnknownFieldSet& fields, unsigned number, int depth) {
    for (int i = 0;; ++i, --number) {
      if (number == 0) return mutate_at(fields, i);
      UnknownField& field = *fields.mutable_field(i);
      UnknownFieldSet inner;
      if (!open(field, depth, inner)) continue;
      const unsigned within = count(inner, depth + 1);
      if (number > within) {
        number -= within;
        continue;
      }
      mutate(inner, number - 1, depth + 1);
      field.mutable_length_delimited()->clear();
      inner.SerializeToString(field.mutable_length_delimited());
      return;
    }
  }

  void mutate_at(UnknownFieldSet& fields, int chosen) {
    UnknownField& field = *fields.mutable_field(chosen);
    switch (below(8)) {
      case 0:
        return fields.DeleteSubrange(chosen, 1);
      case 1:
        return fields.AddField(UnknownField(field));
      case 2:
        return add(fields);
      default:
        return change(field);
    }
  }

  unsigned below(unsigned bound) { return static_cast<unsigned>(random_()) % bound; }
  bool once_in(unsigned times) { return below(times) == 0; }
  std::uint64_t any() {
    return (std::uint64_t{random_()} << 33) ^ (std::uint64_t{random_()} << 11) ^ random_();
  }

  std::uint64_t whole_number(std::uint64_t now) {
    switch (below(4)) {
      case 0:
        return now + below(9) - 4;
      case 1:
        return (std::uint64_t{1} << below(64)) - below(2);
      case 2:
        return any() >> below(64);
      default:
        return below(2) == 0 ? 0 : ~std::uint64_t{0};
    }
  }

  double number() {
    using Limits = std::numeric_limits<double>;
    constexpr std::array kNumbers{
        Limits::quiet_NaN(), Limits::infinity(),  -Limits::infinity(), -0.0, 0.0, 1.0, -1.0,
        Limits::max(),       Limits::denorm_min()};
    return kNumbers[below(kNumbers.size())];
  }

  void change(UnknownField& field) {
    switch (field.type()) {
      case UnknownField::TYPE_VARINT:
        return field.set_varint(whole_number(field.varint()));
      case UnknownField::TYPE_FIXED32:
        return field.set_fixed32(once_in(2)
                                     ? std::bit_cast<std::uint32_t>(static_cast<float>(number()))
                                     : static_cast<std::uint32_t>(whole_number(field.fixed32())));
      case UnknownField::TYPE_FIXED64:
        return field.set_fixed64(once_in(2) ? std::bit_cast<std::uint64_t>(number())
                                            : whole_number(field.fixed64()));
      case UnknownField::TYPE_LENGTH_DELIMITED:
        return field.set_length_delimited(bytes_(field.length_delimited()));
      case UnknownField::TYPE_GROUP:
        return mutate(*field.mutable_group());
    }
  }

  void add(UnknownFieldSet& fields) {
    const int name = static_cast<int>(1 + below(kFieldNumbers));
    switch (below(3)) {
      case 0:
        return fields.AddVarint(name, whole_number(0));
      case 1:
        return fields.AddFixed64(name, std::bit_cast<std::uint64_t>(number()));
      default:
        return fields.AddLengthDelimited(name, once_in(2) ? std::string() : bytes_("a"));
    }
  }

  std::minstd_rand& random_;
  const MutateBytes& bytes_;
};

}  // namespace

std::string mutate_fields(std::string_view message, std::minstd_rand& random,
                          const MutateBytes& bytes) {
  UnknownFieldSet fields;
  if (!fields.ParseFromArray(message.data(), static_cast<int>(message.size()))) return {};
  FieldMutator(random, bytes).mutate(fields);
  std::string out;
  fields.SerializeToString(&out);
  return out;
}

}  // namespace skerry::fuzz
