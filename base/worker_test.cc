#include "base/worker.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>

namespace skerry {
namespace {

TEST(Worker, DoesItsJobsInOrderAndWhatFollowsHere) {
  Completions completions = std::move(*Completions::make());
  Worker worker(completions);
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

TEST(Worker, DoesWhatItWasGivenBeforeItEnds) {
  Completions completions = std::move(*Completions::make());
  int done = 0;
  {
    Worker worker(completions);
    for (int i = 0; i < 10; ++i) {
      worker.run([&done]() -> Done {
        ++done;
        return {};
      });
    }
  }
  EXPECT_EQ(done, 10);
}

}  // namespace
}  // namespace skerry
