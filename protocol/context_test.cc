// SPDX-License-Identifier: Apache-2.0
#include "protocol/context.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <sstream>

#include "base/temp_folder.h"

namespace skerry::protocol {
namespace {

using ::testing::HasSubstr;

Context sample(const Identity& identity) {
  Context context;
  context.name = "ada";
  context.role = pb::ROLE_ADMIN;
  context.endpoints = {"tcp://h:1", "tcp://h:2", "tcp://h:3"};
  context.coordinator_key = Identity::generate().ed25519_key();
  context.seed = identity.seed();
  context.certificate.set_body("body");
  context.certificate.set_signature("signature");
  return context;
}

std::string content_of(const std::filesystem::path& path) {
  std::ostringstream out;
  out << std::ifstream(path).rdbuf();
  return out.str();
}

TEST(Context, ReadsWhatItWrote) {
  const TempFolder folder;
  const auto path = folder.path() / "admin.toml";
  const Identity identity = Identity::generate();
  const Context written = sample(identity);
  ASSERT_TRUE(write_context(path, written));
  const auto read = read_context(path);
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->name, "ada");
  EXPECT_EQ(read->role, pb::ROLE_ADMIN);
  EXPECT_EQ(read->endpoints, written.endpoints);
  EXPECT_EQ(read->coordinator_key, written.coordinator_key);
  EXPECT_EQ(read->certificate.SerializeAsString(), written.certificate.SerializeAsString());
  EXPECT_EQ(identity_of(*read, path)->ed25519_key(), identity.ed25519_key());
  struct stat info {};
  ASSERT_EQ(::stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST(Context, IdentityMayStandBesideIt) {
  const TempFolder folder;
  const auto path = folder.path() / "node.toml";
  const auto identity = Identity::load_or_create(folder.path() / "identity");
  ASSERT_TRUE(identity);
  Context context = sample(*identity);
  context.seed.clear();
  context.identity = "identity";
  ASSERT_TRUE(write_context(path, context));
  const auto read = read_context(path);
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(identity_of(*read, path)->seed(), identity->seed());
}

TEST(Context, BadFilesAreNamedByLineAndKey) {
  const TempFolder folder;
  const auto path = folder.path() / "context.toml";
  EXPECT_EQ(read_context(path).error().code, ErrorCode::kNotFound);
  ASSERT_TRUE(write_context(path, sample(Identity::generate())));
  const std::string good = content_of(path);
  const auto read_with = [&](const std::string& from, const std::string& to) {
    std::string changed = good;
    changed.replace(changed.find(from), from.size(), to);
    std::ofstream(path, std::ios::trunc) << changed;
    const auto read = read_context(path);
    return read ? std::string("accepted") : read.error().message;
  };
  EXPECT_THAT(read_with("name =", "nmae ="), HasSubstr("unknown key \"nmae\""));
  EXPECT_THAT(read_with("name =", "nmae ="), HasSubstr("line "));
  EXPECT_THAT(read_with("name = 'ada'", ""), HasSubstr("name is missing"));
  EXPECT_THAT(read_with("'ada'", "7"), HasSubstr("name must be a string"));
  EXPECT_THAT(read_with("format = 1", "format = 2"), HasSubstr("format"));
  EXPECT_THAT(read_with("'admin'", "'king'"), HasSubstr("king"));
  EXPECT_THAT(read_with("tcp://h:1", "http://h"), HasSubstr("tcp://HOST:PORT"));
  EXPECT_THAT(read_with("seed = '", "seed = 'zz"), HasSubstr("hexadecimal"));
  EXPECT_THAT(read_with("seed = '", "seed = 'aa"), HasSubstr("64 hex"));
  EXPECT_THAT(read_with("name = 'ada'", "name = 'ada"), HasSubstr("context.toml:8:"));
}

}  // namespace
}  // namespace skerry::protocol
