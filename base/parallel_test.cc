// SPDX-License-Identifier: Apache-2.0
// What in_parallel does without what the system usually gives; the rest is in
// base_test.cc.
#include "base/parallel.h"

#include <gtest/gtest.h>
#include <pthread.h>

namespace skerry {
namespace {

// Threads that are begun meanwhile ask for a stack that no machine has.
struct NoMoreThreads {
  pthread_attr_t before{};
  NoMoreThreads() {
    EXPECT_EQ(::pthread_getattr_default_np(&before), 0);
    pthread_attr_t hungry{};
    ::pthread_attr_init(&hungry);
    EXPECT_EQ(::pthread_attr_setstacksize(&hungry, std::size_t{1} << 50), 0);
    EXPECT_EQ(::pthread_setattr_default_np(&hungry), 0);
    ::pthread_attr_destroy(&hungry);
  }
  ~NoMoreThreads() {
    EXPECT_EQ(::pthread_setattr_default_np(&before), 0);
    ::pthread_attr_destroy(&before);
  }
};

TEST(InParallel, DoesItAloneWithoutAnotherThread) {
  const NoMoreThreads here;
  std::size_t done = 0;
  EXPECT_TRUE(in_parallel(10, [&](std::size_t) -> Result<void> {
    ++done;
    return {};
  }));
  EXPECT_EQ(done, 10u);
}

}  // namespace
}  // namespace skerry
