// SPDX-License-Identifier: Apache-2.0
#include "storage/testing/store_conformance.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <thread>

namespace skerry::storage {

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(StoreConformance);

namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

const FamilyName kFamily("ckpt-r1-0-100-7-0");
const FamilyName kOther("ckpt-r1-1-100-7-0");

Hash put(Store& store, const FamilyName& family, const std::string& bytes) {
  const auto outcome = store.put_chunk(family, blake2b(bytes), bytes);
  EXPECT_TRUE(outcome.has_value()) << outcome.error().message;
  return blake2b(bytes);
}

std::string code(const auto& result) {
  return result.has_value() ? "ok" : to_string(result.error().code);
}

TEST_P(StoreConformance, metadata_is_written_read_and_removed) {
  EXPECT_EQ(code(store().write({{"a", "1"}, {"b", std::string("\0\xff", 2)}})), "ok");
  EXPECT_EQ(store().get("a")->value(), "1");
  EXPECT_EQ(store().get("b")->value(), std::string("\0\xff", 2));
  EXPECT_EQ(code(store().write({{"a", std::nullopt}, {"b", ""}})), "ok");
  EXPECT_FALSE(store().get("a")->has_value());
  EXPECT_EQ(store().get("b")->value(), "");
  EXPECT_FALSE(store().get("never")->has_value());
}

TEST_P(StoreConformance, the_last_write_of_a_batch_wins) {
  EXPECT_EQ(code(store().write({{"a", "1"}, {"a", "2"}, {"b", "1"}, {"b", std::nullopt}})), "ok");
  EXPECT_THAT(*store().scan(""), ElementsAre(Entry{"a", "2"}));
}

TEST_P(StoreConformance, scan_gives_a_prefix_in_order) {
  EXPECT_EQ(
      code(store().write(
          {{"n/2", "b"}, {"n/1", "a"}, {"m/9", "x"}, {"n", "y"}, {"o", "z"}, {"n/\xff", "c"}})),
      "ok");
  EXPECT_THAT(*store().scan("n/"),
              ElementsAre(Entry{"n/1", "a"}, Entry{"n/2", "b"}, Entry{"n/\xff", "c"}));
  EXPECT_THAT(*store().scan("p"), IsEmpty());
}

TEST_P(StoreConformance, keys_have_limits) {
  EXPECT_EQ(code(store().write({{"", "1"}})), "invalid");
  EXPECT_EQ(code(store().write({{"ok", "1"}, {std::string(kMaxKeyBytes + 1, 'k'), "1"}})),
            "invalid");
  EXPECT_THAT(*store().scan(""), IsEmpty());
  EXPECT_FALSE(store().failed());
}

TEST_P(StoreConformance, metadata_and_families_do_not_meet) {
  EXPECT_EQ(code(store().create_family(kFamily)), "ok");
  put(store(), kFamily, "chunk");
  EXPECT_THAT(*store().scan(""), IsEmpty());
}

TEST_P(StoreConformance, family_names_are_checked) {
  for (const std::string name : {"", "default", "a/b", "a b", "\xc3\xa9"}) {
    EXPECT_EQ(code(store().create_family(FamilyName(name))), "invalid") << name;
  }
  EXPECT_EQ(code(store().create_family(FamilyName(std::string(kMaxFamilyNameBytes + 1, 'a')))),
            "invalid");
  EXPECT_EQ(code(store().create_family(FamilyName(std::string(kMaxFamilyNameBytes, 'a')))), "ok");
  EXPECT_EQ(code(store().create_family(FamilyName("A.b_c-9"))), "ok");
}

TEST_P(StoreConformance, families_are_listed_in_order_and_created_once) {
  EXPECT_EQ(code(store().create_family(kOther)), "ok");
  EXPECT_EQ(code(store().create_family(kFamily)), "ok");
  EXPECT_EQ(code(store().create_family(kOther)), "conflict");
  EXPECT_THAT(store().families(), ElementsAre(kFamily, kOther));
  EXPECT_FALSE(store().failed());
}

TEST_P(StoreConformance, chunks_come_back_in_any_order_before_and_after_the_flush) {
  EXPECT_EQ(code(store().create_family(kFamily)), "ok");
  const std::string large(kMaxChunkBytes, 'L');
  for (const std::string& bytes : {std::string("zz"), large, std::string(), std::string("aa")})
    put(store(), kFamily, bytes);
  EXPECT_EQ(*store().get_chunk(kFamily, blake2b("zz")), "zz");
  EXPECT_EQ(code(store().flush(kFamily)), "ok");
  for (const std::string& bytes : {std::string("aa"), std::string(), large, std::string("zz")}) {
    EXPECT_EQ(*store().get_chunk(kFamily, blake2b(bytes)), bytes);
  }
  EXPECT_THAT(*store().chunks(kFamily),
              UnorderedElementsAre(blake2b("zz"), blake2b("aa"), blake2b(""), blake2b(large)));
}

TEST_P(StoreConformance, a_family_goes_on_after_a_flush) {
  EXPECT_EQ(code(store().create_family(kFamily)), "ok");
  put(store(), kFamily, "one");
  EXPECT_EQ(code(store().flush(kFamily)), "ok");
  put(store(), kFamily, "two");
  put(store(), kFamily, "one");
  EXPECT_EQ(code(store().flush(kFamily)), "ok");
  EXPECT_EQ(store().chunks(kFamily)->size(), 2U);
}

TEST_P(StoreConformance, families_do_not_share_chunks) {
  EXPECT_EQ(code(store().create_family(kFamily)), "ok");
  EXPECT_EQ(code(store().create_family(kOther)), "ok");
  const Hash hash = put(store(), kFamily, "mine");
  EXPECT_EQ(code(store().get_chunk(kOther, hash)), "not_found");
  put(store(), kOther, "mine");
  EXPECT_EQ(code(store().drop_family(kFamily)), "ok");
  EXPECT_EQ(*store().get_chunk(kOther, hash), "mine");
}

TEST_P(StoreConformance, a_dropped_family_is_gone_and_its_name_is_free) {
  EXPECT_EQ(code(store().create_family(kFamily)), "ok");
  const Hash hash = put(store(), kFamily, "old");
  EXPECT_EQ(code(store().flush(kFamily)), "ok");
  put(store(), kFamily, "unflushed");
  EXPECT_EQ(code(store().drop_family(kFamily)), "ok");
  EXPECT_THAT(store().families(), IsEmpty());
  EXPECT_EQ(code(store().get_chunk(kFamily, hash)), "not_found");
  EXPECT_EQ(code(store().drop_family(kFamily)), "not_found");
  EXPECT_EQ(code(store().create_family(kFamily)), "ok");
  EXPECT_THAT(*store().chunks(kFamily), IsEmpty());
}

TEST_P(StoreConformance, an_unknown_family_takes_nothing) {
  EXPECT_EQ(code(store().put_chunk(kFamily, blake2b("a"), "a")), "not_found");
  EXPECT_EQ(code(store().flush(kFamily)), "not_found");
  EXPECT_EQ(code(store().chunks(kFamily)), "not_found");
  EXPECT_FALSE(store().has_family(kFamily));
  EXPECT_FALSE(store().failed());
}

TEST_P(StoreConformance, a_chunk_over_the_limit_is_refused) {
  EXPECT_EQ(code(store().create_family(kFamily)), "ok");
  const std::string large(kMaxChunkBytes + 1, 'L');
  EXPECT_EQ(code(store().put_chunk(kFamily, blake2b(large), large)), "invalid");
}

TEST_P(StoreConformance, wrong_bytes_are_never_served) {
  EXPECT_EQ(code(store().create_family(kFamily)), "ok");
  EXPECT_EQ(code(store().put_chunk(kFamily, blake2b("right"), "wrong")), "ok");
  put(store(), kFamily, "fine");
  EXPECT_EQ(code(store().get_chunk(kFamily, blake2b("right"))), "corrupt");
  EXPECT_EQ(code(store().flush(kFamily)), "ok");
  EXPECT_EQ(code(store().get_chunk(kFamily, blake2b("right"))), "corrupt");
  EXPECT_THAT(*store().chunks(kFamily), ElementsAre(blake2b("fine")));
  EXPECT_FALSE(store().failed());  // a damaged read does not forbid writing the chunk anew
  put(store(), kFamily, "right");
  EXPECT_EQ(*store().get_chunk(kFamily, blake2b("right")), "right");
}

TEST_P(StoreConformance, threads_fill_and_read_families_at_once) {
  std::vector<std::thread> threads;
  std::vector<int> intact(4, 0);
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      const FamilyName family("family-" + std::to_string(i));
      if (!store().create_family(family)) return;
      for (int n = 0; n < 20; ++n) {
        const std::string bytes(1000 + static_cast<std::size_t>(n), static_cast<char>('a' + i));
        if (!store().put_chunk(family, blake2b(bytes), bytes)) return;
        if (!store().write({{"k/" + std::to_string(i), std::to_string(n)}})) return;
        if (store().get_chunk(family, blake2b(bytes)) == bytes)
          ++intact[static_cast<std::size_t>(i)];
      }
      if (i % 2 == 0 && !store().drop_family(family)) intact[static_cast<std::size_t>(i)] = -1;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(intact, ElementsAre(20, 20, 20, 20));
  EXPECT_EQ(store().scan("k/")->size(), 4U);
  EXPECT_EQ(store().families().size(), 2U);
}

}  // namespace
}  // namespace skerry::storage
