// SPDX-License-Identifier: Apache-2.0
#include "base/worker.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>

namespace skerry {
namespace {

TEST(ThreadWorker, DoesItsJobsInOrderAndWhatFollowsHere) {
  Completions completions = std::move(*Completions::make());
  ThreadWorker worker(completions);
  std::vector<int> order;
  const auto here = std::this_thread::get_id();
  for (int i = 0; i < 100; ++i) {
    worker.run([&order, here, i]() -> Done {
      EXPECT_NE(std::this_thread::get_id(), here);
      return [&order, here, i] {
        EXPECT_EQ(std::this_thread::get_id(), here);
        order.push_back(i);
      };
    });
  }
  while (order.size() < 100) {
    pollfd waiting{completions.descriptor(), POLLIN, 0};
    ASSERT_EQ(::poll(&waiting, 1, -1), 1);
    completions.run();
  }
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
}

TEST(ThreadWorker, DoesWhatItWasGivenBeforeItEnds) {
  Completions completions = std::move(*Completions::make());
  int done = 0;
  {
    ThreadWorker worker(completions);
    for (int i = 0; i < 10; ++i) {
      worker.run([&done]() -> Done {
        ++done;
        return {};
      });
    }
  }
  EXPECT_EQ(done, 10);
}

TEST(ThreadWorker, FinishesOnceAndForAll) {
  Completions completions = std::move(*Completions::make());
  ThreadWorker worker(completions);
  int done = 0;
  worker.run([&done]() -> Done {
    ++done;
    return {};
  });
  worker.finish();
  worker.finish();
  EXPECT_EQ(done, 1);
}

TEST(ManualWorker, DoesAJobWhenToldAndHandsBackWhatFollows) {
  ManualWorker worker;
  std::vector<int> order;
  for (int i = 0; i < 3; ++i) {
    worker.run([&order, i]() -> Done {
      order.push_back(i);
      return [&order, i] { order.push_back(10 + i); };
    });
  }
  EXPECT_TRUE(order.empty());
  worker.next()();
  EXPECT_EQ(order, (std::vector{0, 10}));
  worker.finish();
  EXPECT_EQ(order, (std::vector{0, 10, 1, 2}));
  worker.run([]() -> Done { return {}; });
  worker.drop();
  EXPECT_EQ(worker.waiting(), 0U);
}

}  // namespace
}  // namespace skerry
