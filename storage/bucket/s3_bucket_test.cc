// SPDX-License-Identifier: Apache-2.0
// Against a real server: tests/bucket/bucket_test.py.
#include "storage/bucket/s3_bucket.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <fstream>

#include "base/temp_folder.h"

namespace skerry::storage {
namespace {

const BucketKeys kKeys{.id = "id", .secret = "secret", .token = ""};

TEST(S3Bucket, AUrlThatIsNoneIsRefused) {
  for (const char* url :
       {"", "bucket", "https://bucket", "s3://", "s3:///prefix", "s3://a b", "s3://bucket/?x=1"}) {
    const auto opened = open_s3_bucket({.url = url, .endpoint = "", .keys = kKeys});
    ASSERT_FALSE(opened) << url;
    EXPECT_EQ(opened.error().code, ErrorCode::kInvalid);
    EXPECT_NE(opened.error().message.find("s3://BUCKET"), std::string::npos);
  }
  for (const char* endpoint : {"host", "ftp://host", "https://host/path"}) {
    const auto opened = open_s3_bucket({.url = "s3://b", .endpoint = endpoint, .keys = kKeys});
    ASSERT_FALSE(opened) << endpoint;
    EXPECT_NE(opened.error().message.find("https://HOST"), std::string::npos);
  }
  EXPECT_TRUE(open_s3_bucket({.url = "s3://b/c/", .endpoint = "http://h:9000/", .keys = kKeys}));
}

TEST(S3Bucket, WhereNobodyAnswersSaysSo) {
  const auto bucket = open_s3_bucket({.url = "s3://b/c",
                                      .endpoint = "http://127.0.0.1:1",
                                      .keys = kKeys,
                                      .tries = 2,
                                      .first_pause = std::chrono::milliseconds(1)});
  const auto found = (*bucket)->get("key", 10);
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().code, ErrorCode::kUnavailable);
  EXPECT_NE(found.error().message.find("s3://b/c/key"), std::string::npos) << found.error().message;
  EXPECT_EQ(found.error().message.find("Signature"), std::string::npos) << found.error().message;
}

TEST(BucketKeysTest, AFileIsRefusedWhereOthersReadIt) {
  const TempFolder folder;
  const std::string path = folder / "keys.toml";
  std::ofstream(path) << "access_key_id = \"a\"\nsecret_access_key = \"b\"\n";
  ::chmod(path.c_str(), 0644);
  EXPECT_EQ(bucket_keys(path).error().code, ErrorCode::kUnauthorised);
  ::chmod(path.c_str(), 0600);
  ASSERT_TRUE(bucket_keys(path));
  EXPECT_EQ(bucket_keys(path)->id, "a");
  EXPECT_EQ(bucket_keys(path)->secret, "b");
  std::ofstream(path) << "access_key_id = \"a\"\n";
  EXPECT_EQ(bucket_keys(path).error().code, ErrorCode::kInvalid);
}

}  // namespace
}  // namespace skerry::storage
