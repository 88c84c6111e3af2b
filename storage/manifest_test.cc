// SPDX-License-Identifier: Apache-2.0
#include "storage/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "storage/manifest.pb.h"
#include "storage/testing/testing.h"

namespace skerry::storage {
namespace {

using testing::HasSubstr;

Manifest checkpoint() {
  Manifest manifest = checkpoint_facts();
  const Chunk one{blake2b("one"), 8};
  const Chunk two{blake2b("two"), 4};
  manifest.metadata = {{"b", "2"}, {"a", "1"}};
  manifest.parts = {{std::string(kPartEma), {{"ema/w", DType::kF32, {3}, 1, {one, two}}}, {}},
                    {std::string(kPartState),
                     {{"raw/w", DType::kF32, {2}, 0, {one}}, {"raw/e", DType::kU8, {0}, 2, {}}},
                     {}}};
  return manifest;
}

Manifest file() {
  Manifest manifest;
  manifest.name = "shard-0-1.safetensors";
  manifest.parts = {
      {std::string(kPartFile), {}, {{blake2b("a"), 100}, {blake2b("b"), 1}, {blake2b("a"), 100}}}};
  return manifest;
}

TEST(Manifest, round_trip) {
  for (const Manifest& manifest : {checkpoint(), file()}) {
    const NamedManifest named = value_of(encode_manifest(manifest));
    EXPECT_EQ(named.name, blake2b(named.encoded));
    const NamedManifest again = value_of(decode_manifest(named.encoded));
    EXPECT_EQ(again.manifest, manifest);
    EXPECT_EQ(again.name, named.name);
    EXPECT_EQ(value_of(encode_manifest(again.manifest)).encoded, named.encoded);
  }
}

// The name of an object is part of what others remember: a change of the
// encoding breaks every stored reference.
TEST(Manifest, encoding_is_stable) {
  EXPECT_EQ(value_of(encode_manifest(checkpoint())).name.short_hex(), "bb32f98eefac");
  EXPECT_EQ(value_of(encode_manifest(file())).name.short_hex(), "c0a3ae3de3b3");
}

TEST(Manifest, every_fact_changes_the_name) {
  const Hash name = value_of(encode_manifest(checkpoint())).name;
  const std::vector<std::function<void(Manifest&)>> changes = {
      [](Manifest& m) { m.run = RunId("other"); },
      [](Manifest& m) { ++m.expert; },
      [](Manifest& m) { ++m.step; },
      [](Manifest& m) { --m.from_step; },
      [](Manifest& m) { m.epoch = Epoch(8); },
      [](Manifest& m) { ++m.attempt; },
      [](Manifest& m) { m.parent.reset(); },
      [](Manifest& m) { m.fingerprint += "x"; },
      [](Manifest& m) { m.spec.reset(); },
      [](Manifest& m) { m.metadata["a"] = "2"; },
      [](Manifest& m) { m.parts[0].tensors[0].name = "ema/x"; }};
  for (std::size_t i = 0; i < changes.size(); ++i) {
    Manifest changed = checkpoint();
    changes[i](changed);
    EXPECT_NE(value_of(encode_manifest(changed)).name, name) << i;
  }
}

TEST(Manifest, sizes_and_distinct_chunks) {
  EXPECT_EQ(checkpoint().bytes(), 20U);
  EXPECT_EQ(distinct_chunks(checkpoint()).size(), 2U);
  EXPECT_EQ(distinct_chunks(checkpoint(), {std::string(kPartState)}).size(), 1U);
  EXPECT_EQ(distinct_chunks(file()).size(), 2U);
  EXPECT_EQ(file().bytes(), 201U);
  EXPECT_EQ(checkpoint().part("none"), nullptr);
}

stored::Manifest message_of(const Manifest& manifest) {
  stored::Manifest message;
  EXPECT_TRUE(message.ParseFromString(value_of(encode_manifest(manifest)).encoded));
  return message;
}

struct Malformed {
  const char* name;
  std::function<void(stored::Manifest&)> break_checkpoint;
  const char* says;
};

class MalformedManifest : public testing::TestWithParam<Malformed> {};

TEST_P(MalformedManifest, is_refused_with_a_reason) {
  stored::Manifest message = message_of(checkpoint());
  GetParam().break_checkpoint(message);
  const auto decoded = decode_manifest(message.SerializeAsString());
  ASSERT_FALSE(decoded.has_value());
  EXPECT_EQ(decoded.error().code, ErrorCode::kCorrupt);
  EXPECT_THAT(decoded.error().message, HasSubstr(GetParam().says));
}

stored::ManifestTensor& ema(stored::Manifest& m) { return *m.mutable_parts(0)->mutable_tensors(0); }

INSTANTIATE_TEST_SUITE_P(
    table, MalformedManifest,
    testing::Values(
        Malformed{"no_kind", [](auto& m) { m.clear_kind(); }, "unknown kind"},
        Malformed{"no_run", [](auto& m) { m.clear_run(); }, "run id"},
        Malformed{"run_with_a_path", [](auto& m) { m.set_run("../r"); }, "run id"},
        Malformed{"file_name", [](auto& m) { m.set_name("x"); }, "file name"},
        Malformed{"span_backwards", [](auto& m) { m.set_from_step(101); }, "before it begins"},
        Malformed{"short_parent", [](auto& m) { m.set_parent("x"); }, "32 bytes"},
        Malformed{"short_spec", [](auto& m) { m.set_spec("x"); }, "32 bytes"},
        Malformed{"short_chunk", [](auto& m) { ema(m).mutable_chunks(0)->set_hash("x"); },
                  "32 bytes"},
        Malformed{"empty_chunk", [](auto& m) { ema(m).mutable_chunks(0)->set_bytes(0); },
                  "chunk of 0"},
        Malformed{"large_chunk",
                  [](auto& m) { ema(m).mutable_chunks(0)->set_bytes(kMaxChunkBytes + 1); },
                  "a chunk of"},
        Malformed{"two_sizes",
                  [](auto& m) {
                    m.mutable_parts(1)->mutable_tensors(0)->mutable_chunks(0)->set_bytes(7);
                  },
                  "two sizes"},
        Malformed{"missing_chunk", [](auto& m) { ema(m).mutable_chunks()->RemoveLast(); },
                  "do not fit"},
        Malformed{"other_shape", [](auto& m) { ema(m).set_shape(0, 4); }, "do not fit"},
        Malformed{"overflowing_shape",
                  [](auto& m) {
                    ema(m).set_shape(0, 1ULL << 33);
                    ema(m).add_shape(1ULL << 33);
                  },
                  "do not fit"},
        Malformed{"many_dimensions",
                  [](auto& m) {
                    for (int i = 0; i < 20; ++i) ema(m).add_shape(1);
                  },
                  "dimensions"},
        Malformed{"unknown_type", [](auto& m) { ema(m).set_dtype("F1"); }, "F1"},
        Malformed{"no_tensor_name", [](auto& m) { ema(m).clear_name(); }, "fitting name"},
        Malformed{"same_tensor", [](auto& m) { ema(m).set_name("raw/w"); }, "two tensors"},
        Malformed{"same_position", [](auto& m) { ema(m).set_position(0); }, "position 0"},
        Malformed{"position_beyond", [](auto& m) { ema(m).set_position(3); }, "position 3"},
        Malformed{"unknown_part", [](auto& m) { m.mutable_parts(0)->set_name("x"); },
                  "unknown part"},
        Malformed{"same_part", [](auto& m) { m.mutable_parts(0)->set_name("state"); }, "two parts"},
        Malformed{"loose_chunks",
                  [](auto& m) { *m.mutable_parts(0)->add_chunks() = ema(m).chunks(0); }, "outside"},
        Malformed{"metadata_twice", [](auto& m) { *m.add_metadata() = m.metadata(0); },
                  "a key twice"},
        Malformed{"long_metadata",
                  [](auto& m) { m.mutable_metadata(0)->set_value(std::string(5000, 'x')); },
                  "overlong"},
        Malformed{"long_fingerprint", [](auto& m) { m.set_fingerprint(std::string(5000, 'x')); },
                  "fingerprint"},
        Malformed{"checkpoint_called_a_file",
                  [](auto& m) { m.set_kind(stored::Manifest::KIND_FILE); }, "a file"}),
    [](const auto& tried) { return std::string(tried.param.name); });

TEST(Manifest, file_names_lead_nowhere_else) {
  for (const std::string name : {"", ".", "..", "a/b", "/a", "a\\b", "a\nb"}) {
    Manifest manifest = file();
    manifest.name = name;
    EXPECT_FALSE(encode_manifest(manifest).has_value()) << name;
  }
}

TEST(Manifest, bytes_that_are_none) {
  EXPECT_EQ(decode_manifest("\xff\xff").error().code, ErrorCode::kCorrupt);
  EXPECT_EQ(decode_manifest(std::string(kMaxManifestBytes + 1, '\0')).error().code,
            ErrorCode::kCorrupt);
}

TEST(Manifest, a_later_version_is_said_to_be_one) {
  stored::Manifest message = message_of(file());
  message.set_version(2);
  const auto decoded = decode_manifest(message.SerializeAsString());
  EXPECT_EQ(decoded.error().code, ErrorCode::kInvalid);
  EXPECT_THAT(decoded.error().message, HasSubstr("version 2"));
}

TEST(Manifest, one_that_would_not_travel_is_refused) {
  Manifest manifest = file();
  manifest.parts[0].chunks.clear();
  for (unsigned i = 0; i < 120'000; ++i)
    manifest.parts[0].chunks.push_back({blake2b(std::to_string(i)), 4 << 20});
  EXPECT_EQ(encode_manifest(manifest).error().code, ErrorCode::kInvalid);
}

}  // namespace
}  // namespace skerry::storage
