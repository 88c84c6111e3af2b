// SPDX-License-Identifier: Apache-2.0
// Header parsing. A SAX handler keeps a 100 MB header from becoming a gigabyte
// of document nodes. Only the event stream shows duplicate keys.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "base/text.h"
#include "storage/safetensors.h"
#include "storage/tensor_size.h"

namespace skerry::storage {
namespace {

constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;
constexpr std::size_t kLengthBytes = 8;
constexpr std::string_view kMetadataKey = "__metadata__";

Error corrupt(const std::string& what) { return fail(ErrorCode::kCorrupt, "safetensors: " + what); }

class HeaderReader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  std::vector<TensorInfo> tensors;
  std::map<std::string, std::string> metadata;
  std::string problem;

  bool null() override { return refuse("null value"); }
  bool boolean(bool) override { return refuse("boolean value"); }
  bool number_integer(number_integer_t) override { return refuse("negative number"); }
  bool number_float(number_float_t, const string_t&) override {
    return refuse("number that is not an integer");
  }
  bool binary(binary_t&) override { return refuse("binary value"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (!in_array_) return refuse("number where none belongs");
    if (field_ == Field::kOffsets && offsets_.size() == 2)
      return refuse("more than two data_offsets");
    (field_ == Field::kShape ? tensors.back().shape : offsets_).push_back(value);
    return true;
  }

  bool string(string_t& value) override {
    if (place_ == Place::kMetadata) {
      metadata[key_] = std::move(value);
      return true;
    }
    if (place_ != Place::kTensor || field_ != Field::kDtype)
      return refuse("text where none belongs");
    auto dtype = parse_dtype(value);
    if (!dtype) return refuse(dtype.error().message);
    tensors.back().dtype = *dtype;
    return true;
  }

  bool start_object(std::size_t) override {
    if (place_ == Place::kStart) {
      place_ = Place::kTop;
      return true;
    }
    if (place_ != Place::kTop) return refuse("nested object");
    place_ = key_ == kMetadataKey ? Place::kMetadata : Place::kTensor;
    if (place_ == Place::kTensor) {
      tensors.emplace_back().name = key_;
      seen_ = 0;
      field_ = Field::kNone;
      offsets_.clear();
    }
    return true;
  }

  bool key(string_t& value) override {
    if (place_ == Place::kTop && !names_.insert(value).second)
      return refuse("duplicate tensor \"" + value + "\"");
    if (place_ == Place::kMetadata && metadata.contains(value))
      return refuse("duplicate metadata \"" + value + "\"");
    key_ = value;
    return place_ != Place::kTensor || choose_field(value);
  }

  bool end_object() override {
    if (place_ == Place::kTensor) {
      if (seen_ != kAllFields) return refuse("dtype, shape or data_offsets missing");
      if (offsets_.size() != 2) return refuse("data_offsets must be two numbers");
      tensors.back().begin = offsets_[0];
      tensors.back().end = offsets_[1];
    }
    place_ = place_ == Place::kTop ? Place::kDone : Place::kTop;
    return true;
  }

  bool start_array(std::size_t) override {
    if (place_ != Place::kTensor || in_array_) return refuse("array where none belongs");
    if (field_ != Field::kShape && field_ != Field::kOffsets)
      return refuse("array where none belongs");
    in_array_ = true;
    return true;
  }

  bool end_array() override {
    in_array_ = false;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    problem = text("header is not valid JSON at byte ", position);
    return false;
  }

 private:
  enum class Place { kStart, kTop, kMetadata, kTensor, kDone };
  enum class Field { kNone = 0, kDtype = 1, kShape = 2, kOffsets = 4 };
  static constexpr int kAllFields = 7;

  bool choose_field(const std::string& name) {
    field_ = name == "dtype"          ? Field::kDtype
             : name == "shape"        ? Field::kShape
             : name == "data_offsets" ? Field::kOffsets
                                      : Field::kNone;
    if (field_ == Field::kNone) return refuse("unknown field \"" + name + "\"");
    if ((seen_ & static_cast<int>(field_)) != 0) return refuse("duplicate field \"" + name + "\"");
    seen_ |= static_cast<int>(field_);
    return true;
  }

  bool refuse(const std::string& what) {
    const bool in_tensor = place_ == Place::kTensor;
    problem = in_tensor ? text("tensor \"", tensors.back().name, "\": ", what)
                        : text("header: ", what, " at \"", key_, "\"");
    return false;
  }

  Place place_ = Place::kStart;
  Field field_ = Field::kNone;
  int seen_ = 0;
  bool in_array_ = false;
  std::string key_;
  std::vector<std::uint64_t> offsets_;
  std::unordered_set<std::string> names_;
};

// Sorted by offset, each tensor must begin where the one before ends: that
// excludes overlaps and holes at once.
Result<void> check_layout(std::vector<TensorInfo>& tensors, std::uint64_t data_bytes) {
  std::sort(tensors.begin(), tensors.end(), [](const TensorInfo& a, const TensorInfo& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  std::uint64_t expected = 0;
  for (const TensorInfo& tensor : tensors) {
    if (tensor.end < tensor.begin)
      return corrupt(text("tensor \"", tensor.name, "\" ends before it begins"));
    if (tensor.begin != expected) {
      return corrupt(text("tensor \"", tensor.name, "\" begins at ", tensor.begin, " where ",
                          expected, " was expected (hole or overlap)"));
    }
    const auto bytes = tensor_bytes(tensor.dtype, tensor.shape);
    if (!bytes || *bytes != tensor.bytes()) {
      return corrupt(text("tensor \"", tensor.name, "\" has ", tensor.bytes(),
                          " bytes, its type and shape need ",
                          bytes ? text(*bytes) : std::string("more than 64 bits can count")));
    }
    expected = tensor.end;
  }
  if (expected != data_bytes) {
    return corrupt(
        text("tensors cover ", expected, " bytes, the file has ", data_bytes, " bytes of data"));
  }
  return {};
}

}  // namespace

Result<SafetensorsHeader> parse_safetensors_header(std::string_view bytes,
                                                   std::uint64_t file_bytes) {
  if (bytes.size() < kLengthBytes || file_bytes < kLengthBytes)
    return corrupt("shorter than its length field");
  std::uint64_t length = 0;
  for (std::size_t i = kLengthBytes; i-- > 0;)
    length = length << 8 | static_cast<unsigned char>(bytes[i]);
  if (length > kMaxHeaderBytes) {
    return corrupt(text("header of ", length, " bytes, at most ", kMaxHeaderBytes, " are allowed"));
  }
  if (length > file_bytes - kLengthBytes || length > bytes.size() - kLengthBytes) {
    return corrupt(text("header of ", length, " bytes goes beyond the end of the file"));
  }
  const std::string_view json = bytes.substr(kLengthBytes, length);
  if (json.empty() || json.front() != '{') return corrupt("header does not begin with {");
  HeaderReader reader;
  if (!nlohmann::json::sax_parse(json.begin(), json.end(), &reader)) return corrupt(reader.problem);
  SafetensorsHeader header;
  header.tensors = std::move(reader.tensors);
  header.metadata = std::move(reader.metadata);
  header.data_start = kLengthBytes + length;
  header.total_bytes = file_bytes;
  TRY(check_layout(header.tensors, file_bytes - header.data_start));
  return header;
}

const TensorInfo* SafetensorsHeader::find(std::string_view name) const {
  const auto found = std::find_if(tensors.begin(), tensors.end(),
                                  [&](const TensorInfo& t) { return t.name == name; });
  return found == tensors.end() ? nullptr : &*found;
}

Result<std::string> safetensors_header(const std::vector<TensorView>& tensors,
                                       const std::map<std::string, std::string>& metadata) {
  std::unordered_set<std::string_view> names;
  std::string json = "{";
  std::uint64_t offset = 0;
  try {
    if (!metadata.empty())
      json += "\"" + std::string(kMetadataKey) + "\":" + nlohmann::json(metadata).dump();
    for (const TensorView& tensor : tensors) {
      if (tensor.name == kMetadataKey || !names.insert(tensor.name).second) {
        return fail(ErrorCode::kInvalid, text("tensor name \"", tensor.name, "\" is taken"));
      }
      const auto bytes = tensor_bytes(tensor.dtype, tensor.shape);
      std::uint64_t end = 0;
      if (!bytes || __builtin_add_overflow(offset, *bytes, &end)) {
        return fail(ErrorCode::kInvalid, text("tensor \"", tensor.name, "\" is too large"));
      }
      if (json.size() > 1) json += ',';
      json += nlohmann::json(tensor.name).dump() + ":{\"dtype\":\"" +
              std::string(name_of(tensor.dtype)) +
              "\",\"shape\":" + nlohmann::json(tensor.shape).dump() + ",\"data_offsets\":[" +
              std::to_string(offset) + "," + std::to_string(end) + "]}";
      offset = end;
    }
  } catch (const nlohmann::json::exception&) {
    return fail(ErrorCode::kInvalid, "a tensor name or metadata value is not valid UTF-8");
  }
  json += '}';
  json.append((8 - json.size() % 8) % 8, ' ');
  if (json.size() > kMaxHeaderBytes)
    return fail(ErrorCode::kInvalid, "safetensors header would exceed 100 MB");
  std::string header;
  for (unsigned shift = 0; shift < 64; shift += 8)
    header += static_cast<char>(json.size() >> shift & 0xff);
  return header + json;
}

}  // namespace skerry::storage
