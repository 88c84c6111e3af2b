// SPDX-License-Identifier: Apache-2.0
#include "dashboard/access.h"

#include <gtest/gtest.h>

namespace skerry::dashboard {
namespace {

Access shared() { return Access({.hosts = {"Runs.Example.org", "[::1]"}, .needs_session = true}); }

// The browser returns what stands before the attributes.
std::string cookie_of(const std::string& header) { return header.substr(0, header.find(';')); }

TEST(Access, KnowsItsHostWithAnyPortAndInAnyCase) {
  const Access access = shared();
  EXPECT_TRUE(access.is_own_host("runs.example.org"));
  EXPECT_TRUE(access.is_own_host("RUNS.example.org:7680"));
  EXPECT_TRUE(access.is_own_host("[::1]:80"));
  for (const char* other : {"", "evil.org", "runs.example.org.evil.org", "[::2]", "[::1", ":7680"})
    EXPECT_FALSE(access.is_own_host(other)) << other;
}

TEST(Access, AKeyStartsOneSession) {
  Access access = shared();
  const std::string key = access.key();
  EXPECT_FALSE(access.start_session("").has_value());
  EXPECT_FALSE(access.start_session(key + "0").has_value());
  const auto cookie = access.start_session(key);
  ASSERT_TRUE(cookie.has_value());
  for (const char* attribute : {"HttpOnly", "SameSite=Strict", "Secure", "Path=/"})
    EXPECT_NE(cookie->find(attribute), std::string::npos) << attribute;
  EXPECT_FALSE(access.start_session(key).has_value());
  EXPECT_NE(access.key(), key);
}

TEST(Access, ReadsOnlyWithASession) {
  Access access = shared();
  const std::string cookie = cookie_of(*access.start_session(access.key()));
  EXPECT_TRUE(access.may_read(cookie));
  EXPECT_TRUE(access.may_read("a=b; " + cookie + "; c=d"));
  for (const std::string& other : {std::string(), std::string("__Host-skerry="), cookie + "0",
                                   cookie.substr(0, cookie.size() - 1), "x" + cookie})
    EXPECT_FALSE(access.may_read(other)) << other;
  EXPECT_TRUE(Access({.hosts = {}, .needs_session = false}).may_read(""));
}

TEST(Access, TheOldestSessionEndsBeyondTheLimit) {
  Access access = shared();
  const std::string first = cookie_of(*access.start_session(access.key()));
  for (std::size_t i = 1; i < Access::kSessions; ++i)
    ASSERT_TRUE(access.start_session(access.key()).has_value());
  EXPECT_TRUE(access.may_read(first));
  ASSERT_TRUE(access.start_session(access.key()).has_value());
  EXPECT_FALSE(access.may_read(first));
}

}  // namespace
}  // namespace skerry::dashboard
