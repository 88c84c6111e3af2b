// SPDX-License-Identifier: Apache-2.0
#include "daemon/core/state_writes.h"

#include <gtest/gtest.h>

namespace skerry::daemon {
namespace {

using std::chrono::seconds;

// The host's loop over a disk that is full while `full` is set.
class StateWritesTest : public testing::Test {
 protected:
  void write(const Write& write) {
    writes_.started(write);
    if (full_) return writes_.refused(now_);
    on_disk_ = write;
    writes_.saved(write);
  }
  void pass(Duration time) {
    now_ += time;
    while (const std::optional<Write> due = writes_.due(now_)) write(*due);
  }

  StateWrites writes_;
  Duration now_{};
  bool full_ = false;
  Write on_disk_;
};

TEST_F(StateWritesTest, a_refused_state_is_written_when_there_is_room) {
  full_ = true;
  write({1, "first"});
  pass(StateWrites::kRetry - seconds(1));
  EXPECT_FALSE(writes_.due(now_).has_value());
  full_ = false;
  pass(seconds(1));
  EXPECT_EQ(on_disk_.state, "first");
}

TEST_F(StateWritesTest, a_refused_state_never_replaces_a_newer_one) {
  full_ = true;
  write({1, "first"});
  full_ = false;
  write({2, "second"});
  pass(StateWrites::kRetry);
  EXPECT_EQ(on_disk_.state, "second");
}

// The second one is at the disk, where it waits, when the first is refused.
TEST_F(StateWritesTest, of_several_refused_states_the_newest_is_written) {
  writes_.started({1, "first"});
  writes_.started({2, "second"});
  writes_.refused(now_);
  writes_.refused(now_);
  pass(StateWrites::kRetry);
  EXPECT_EQ(on_disk_.state, "second");
  EXPECT_FALSE(writes_.due(now_ + StateWrites::kRetry).has_value());
}

// A retry is at the disk when the core changes its state.
TEST_F(StateWritesTest, a_saved_state_leaves_a_newer_refused_one_to_be_written) {
  writes_.started({1, "first"});
  writes_.started({2, "second"});
  writes_.refused(now_);
  writes_.saved({1, "first"});
  pass(StateWrites::kRetry);
  EXPECT_EQ(on_disk_.state, "second");
}

}  // namespace
}  // namespace skerry::daemon
