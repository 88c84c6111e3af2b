// SPDX-License-Identifier: Apache-2.0
#include "storage/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/temp_folder.h"
#include "storage/files.h"

namespace skerry::storage {
namespace {

std::string with_length(std::uint64_t length, const std::string& rest) {
  std::string bytes;
  for (unsigned shift = 0; shift < 64; shift += 8)
    bytes += static_cast<char>(length >> shift & 0xff);
  return bytes + rest;
}

std::string file_of(const std::string& json, std::size_t data_bytes) {
  return with_length(json.size(), json + std::string(data_bytes, 'd'));
}

std::string tensor_json(const std::string& name, const std::string& dtype, const std::string& shape,
                        const std::string& offsets) {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape +
         ",\"data_offsets\":" + offsets + "}";
}

struct Malformed {
  const char* name;
  std::string bytes;
  const char* says;
};

void PrintTo(const Malformed& malformed, std::ostream* out) { *out << malformed.name; }

class MalformedTest : public testing::TestWithParam<Malformed> {};

TEST_P(MalformedTest, is_refused_as_corrupt_with_a_reason) {
  const auto parsed = Safetensors::parse(GetParam().bytes);
  ASSERT_FALSE(parsed.has_value());
  EXPECT_EQ(parsed.error().code, ErrorCode::kCorrupt);
  EXPECT_THAT(parsed.error().message, testing::HasSubstr(GetParam().says));
}

const std::string kGood = tensor_json("a", "F32", "[2]", "[0,8]");

INSTANTIATE_TEST_SUITE_P(
    table, MalformedTest,
    testing::Values(
        Malformed{"empty", "", "length field"},
        Malformed{"cut_in_the_length", std::string("\x10\0\0", 3), "length field"},
        Malformed{"length_beyond_the_file", with_length(100, "{}"), "beyond the end"},
        Malformed{"length_that_wraps", with_length(~0ULL - 3, "{}"), "at most 100000000"},
        Malformed{"header_over_100_MB", with_length(100'000'001, std::string(100'000'001, ' ')),
                  "at most 100000000"},
        Malformed{"no_header", with_length(0, ""), "begin with {"},
        Malformed{"leading_space", file_of(" {}", 0), "begin with {"},
        Malformed{"broken_json", file_of("{\"a\":", 0), "not valid JSON"},
        Malformed{"text_after_json", file_of("{}x", 0), "not valid JSON"},
        Malformed{"invalid_utf8", file_of("{\"\xff\":1}", 0), "not valid JSON"},
        Malformed{"tensor_that_is_a_number", file_of("{\"a\":3}", 0), "number where none"},
        Malformed{"tensor_that_is_null", file_of("{\"a\":null}", 0), "null"},
        Malformed{"tensor_that_is_an_array", file_of("{\"a\":[]}", 0), "array where none"},
        Malformed{"truncated_data", file_of("{" + kGood + "}", 7), "7 bytes of data"},
        Malformed{"trailing_data", file_of("{" + kGood + "}", 9), "9 bytes of data"},
        Malformed{"hole",
                  file_of("{" + kGood + "," + tensor_json("b", "U8", "[1]", "[9,10]") + "}", 10),
                  "hole"},
        Malformed{"hole_at_the_front",
                  file_of("{" + tensor_json("a", "U8", "[1]", "[1,2]") + "}", 2), "hole"},
        Malformed{"overlap",
                  file_of("{" + kGood + "," + tensor_json("b", "U8", "[4]", "[4,8]") + "}", 8),
                  "overlap"},
        Malformed{"same_place",
                  file_of("{" + kGood + "," + tensor_json("b", "F32", "[2]", "[0,8]") + "}", 8),
                  "overlap"},
        Malformed{"duplicate",
                  file_of("{" + kGood + "," + tensor_json("a", "U8", "[1]", "[8,9]") + "}", 9),
                  "duplicate"},
        Malformed{"ends_before_it_begins",
                  file_of("{" + tensor_json("a", "U8", "[1]", "[1,0]") + "}", 1), "ends before"},
        Malformed{"shape_too_small",
                  file_of("{" + tensor_json("a", "F32", "[1]", "[0,8]") + "}", 8), "need 4"},
        Malformed{
            "shape_overflows",
            file_of("{" + tensor_json("a", "F32", "[4611686018427387904,2]", "[0,8]") + "}", 8),
            "64 bits"},
        Malformed{
            "shape_wraps_to_fit",
            file_of("{" + tensor_json("a", "U8", "[4294967296,4294967296]", "[0,0]") + "}", 0),
            "64 bits"},
        Malformed{"shape_beyond_u64",
                  file_of("{" + tensor_json("a", "U8", "[18446744073709551616]", "[0,1]") + "}", 1),
                  "not an integer"},
        Malformed{"negative_shape", file_of("{" + tensor_json("a", "U8", "[-1]", "[0,1]") + "}", 1),
                  "negative"},
        Malformed{"fractional_shape",
                  file_of("{" + tensor_json("a", "U8", "[1.0]", "[0,1]") + "}", 1), "integer"},
        Malformed{"nested_shape", file_of("{" + tensor_json("a", "U8", "[[1]]", "[0,1]") + "}", 1),
                  "array where"},
        Malformed{"one_offset", file_of("{" + tensor_json("a", "U8", "[1]", "[0]") + "}", 1),
                  "two numbers"},
        Malformed{"three_offsets", file_of("{" + tensor_json("a", "U8", "[1]", "[0,1,2]") + "}", 1),
                  "more than two"},
        Malformed{"offsets_as_object", file_of("{" + tensor_json("a", "U8", "[1]", "{}") + "}", 1),
                  "nested object"},
        Malformed{"unknown_type", file_of("{" + tensor_json("a", "F99", "[1]", "[0,1]") + "}", 1),
                  "F99"},
        Malformed{"missing_shape", file_of("{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,1]}}", 1),
                  "missing"},
        Malformed{"missing_everything", file_of("{\"a\":{}}", 0), "missing"},
        Malformed{"dtype_that_is_a_number", file_of("{\"a\":{\"dtype\":1}}", 0),
                  "number where none"},
        Malformed{"duplicate_field", file_of("{\"a\":{\"dtype\":\"U8\",\"dtype\":\"I8\"}}", 0),
                  "duplicate field"},
        Malformed{"unknown_field", file_of("{\"a\":{\"strides\":[1]}}", 0), "unknown field"},
        Malformed{"metadata_number", file_of("{\"__metadata__\":{\"a\":1}}", 0),
                  "number where none"},
        Malformed{"metadata_null", file_of("{\"__metadata__\":{\"a\":null}}", 0), "null"},
        Malformed{"metadata_object", file_of("{\"__metadata__\":{\"a\":{}}}", 0), "nested object"},
        Malformed{"metadata_text", file_of("{\"__metadata__\":\"a\"}", 0), "text where none"},
        Malformed{"metadata_twice", file_of("{\"__metadata__\":{\"a\":\"1\",\"a\":\"2\"}}", 0),
                  "duplicate metadata"}),
    [](const auto& tried) { return std::string(tried.param.name); });

TEST(Safetensors, reads_what_the_format_allows) {
  const std::string json = "{" + tensor_json("late", "U8", "[0,7]", "[8,8]") + "," +
                           tensor_json("a", "F64", "[]", "[0,8]") +
                           ",\"__metadata__\":{\"k\":\"\\u00e9\"}}   ";
  const auto parsed = Safetensors::parse(file_of(json, 8));
  ASSERT_TRUE(parsed.has_value()) << parsed.error().message;
  ASSERT_EQ(parsed->header().tensors.size(), 2U);
  EXPECT_EQ(parsed->header().tensors[0].name, "a");  // in order of offset, not of appearance
  EXPECT_EQ(parsed->tensor("a")->data, std::string(8, 'd'));
  EXPECT_EQ(parsed->tensor("late")->data, "");
  EXPECT_EQ(parsed->header().metadata.at("k"), "\xc3\xa9");
  EXPECT_EQ(parsed->tensor("b").error().code, ErrorCode::kNotFound);
  EXPECT_TRUE(Safetensors::parse(file_of("{}", 0)).has_value());
}

TEST(Safetensors, header_alone_is_enough_to_know_the_layout) {
  const std::string whole = file_of("{" + kGood + "}", 8);
  const auto header =
      parse_safetensors_header(std::string_view(whole).substr(0, whole.size() - 8), whole.size());
  ASSERT_TRUE(header.has_value());
  EXPECT_EQ(header->total_bytes, whole.size());
  EXPECT_EQ(header->data_start, whole.size() - 8);
}

std::vector<TensorView> sample_tensors() {
  return {{"z/last \"quoted\"", DType::kU8, {3}, "abc"},
          {"a", DType::kF16, {1, 2}, "wxyz"},
          {"none", DType::kI64, {0}, ""}};
}

TEST(Safetensors, round_trip_keeps_order_types_and_bytes) {
  const auto encoded = encode_safetensors(sample_tensors(), {{"format", "pt"}});
  ASSERT_TRUE(encoded.has_value());
  const auto parsed = Safetensors::parse(*encoded);
  ASSERT_TRUE(parsed.has_value()) << parsed.error().message;
  EXPECT_EQ(parsed->header().data_start % 8, 0U);
  EXPECT_EQ(parsed->header().metadata.at("format"), "pt");
  std::vector<TensorView> again;
  for (const TensorInfo& info : parsed->header().tensors) again.push_back(parsed->view(info));
  EXPECT_EQ(encode_safetensors(again, parsed->header().metadata), *encoded);
}

TEST(Safetensors, a_number_in_the_metadata_is_the_whole_value) {
  const std::map<std::string, std::string> metadata{{"step", "12"}, {"scale", "0.18215"},
                                                    {"low", "-1"},  {"more", "12 "},
                                                    {"none", ""},   {"words", "twelve"}};
  EXPECT_EQ(number_in<std::uint64_t>(metadata, "step"), 12U);
  EXPECT_EQ(number_in<double>(metadata, "scale"), 0.18215);
  EXPECT_EQ(number_in<std::int64_t>(metadata, "low"), -1);
  EXPECT_EQ(number_in<std::uint64_t>(metadata, "low"), std::nullopt);
  EXPECT_EQ(number_in<std::uint64_t>(metadata, "scale"), std::nullopt);
  for (const char* key : {"more", "none", "words", "missing"})
    EXPECT_EQ(number_in<double>(metadata, key), std::nullopt) << key;
}

TEST(Safetensors, writer_refuses_what_it_could_not_read_back) {
  const auto code = [](std::vector<TensorView> tensors,
                       std::map<std::string, std::string> metadata) {
    const auto encoded = encode_safetensors(tensors, metadata);
    return encoded ? std::string("accepted") : std::string(to_string(encoded.error().code));
  };
  EXPECT_EQ(code({{"a", DType::kF32, {2}, "1234"}}, {}), "invalid");
  EXPECT_EQ(code({{"a", DType::kU8, {1}, "1"}, {"a", DType::kU8, {1}, "1"}}, {}), "invalid");
  EXPECT_EQ(code({{"__metadata__", DType::kU8, {1}, "1"}}, {}), "invalid");
  EXPECT_EQ(code({{"\xff", DType::kU8, {1}, "1"}}, {}), "invalid");
  EXPECT_EQ(code({}, {{"k", "\xff"}}), "invalid");
}

class SafetensorsFile : public testing::Test {
 protected:
  TempFolder folder_;
};

TEST_F(SafetensorsFile, is_written_whole_and_mapped) {
  const std::string path = folder_ / "weights.safetensors";
  ASSERT_TRUE(write_safetensors(path, sample_tensors(), {}).has_value());
  const auto opened = Safetensors::open(path);
  ASSERT_TRUE(opened.has_value()) << opened.error().message;
  EXPECT_EQ(opened->tensor("a")->data, "wxyz");
  EXPECT_EQ(opened->file(), *encode_safetensors(sample_tensors(), {}));
  EXPECT_FALSE(std::filesystem::exists(path + ".partial"));
}

TEST_F(SafetensorsFile, a_refused_tensor_leaves_no_file) {
  const std::string path = folder_ / "weights.safetensors";
  EXPECT_FALSE(write_safetensors(path, {{"a", DType::kF32, {2}, "1"}}, {}).has_value());
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
}

TEST_F(SafetensorsFile, errors_name_the_file) {
  const auto missing = Safetensors::open(folder_ / "absent");
  ASSERT_FALSE(missing.has_value());
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(missing.error().message, testing::HasSubstr("absent"));
  std::ofstream(folder_ / "empty") << "";
  EXPECT_EQ(Safetensors::open(folder_ / "empty").error().code, ErrorCode::kCorrupt);
  EXPECT_EQ(Safetensors::open(folder_.path()).error().code, ErrorCode::kInvalid);
}

TEST_F(SafetensorsFile, a_descriptor_is_mapped_and_stays_the_callers) {
  const int descriptor = memfd_create("snapshot", 0);
  const std::string bytes = *encode_safetensors(sample_tensors(), {});
  ASSERT_TRUE(write_all(descriptor, bytes, "snapshot").has_value());
  const auto mapped = Safetensors::map(descriptor, bytes.size());
  ASSERT_TRUE(mapped.has_value());
  EXPECT_EQ(mapped->file(), bytes);
  EXPECT_EQ(Safetensors::map(descriptor, bytes.size() + 1).error().code, ErrorCode::kCorrupt);
  EXPECT_EQ(::close(descriptor), 0);
}

}  // namespace
}  // namespace skerry::storage
