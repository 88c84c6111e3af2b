// SPDX-License-Identifier: Apache-2.0
#include "base/event_queue.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <vector>

namespace skerry {
namespace {

struct Recorder {
  std::vector<int> began;
  std::vector<int> ended;
  std::function<void(int)> within = [](int) {};
  EventQueue<int> queue{[this](const int& event) {
    began.push_back(event);
    within(event);
    ended.push_back(event);
  }};
};

TEST(EventQueue, HandlesAnEventBeforeFeedReturns) {
  Recorder recorder;
  recorder.queue.feed(1);
  EXPECT_EQ(recorder.ended, std::vector{1});
}

TEST(EventQueue, AnEventFedByAHandlerWaitsForItsTurn) {
  Recorder recorder;
  recorder.within = [&](int event) {
    if (event == 1) {
      recorder.queue.feed(2);
      recorder.queue.feed(3);
      EXPECT_EQ(recorder.began, std::vector{1});
    }
  };
  recorder.queue.feed(1);
  EXPECT_EQ(recorder.ended, (std::vector{1, 2, 3}));
}

TEST(EventQueue, PushWaitsForADrain) {
  Recorder recorder;
  recorder.queue.push(1);
  recorder.queue.push(2);
  EXPECT_TRUE(recorder.began.empty());
  recorder.queue.drain();
  EXPECT_EQ(recorder.ended, (std::vector{1, 2}));
}

TEST(EventQueue, WhatWorkBringsAboutFollowsIt) {
  Recorder recorder;
  recorder.queue.during([&] {
    recorder.queue.feed(1);
    EXPECT_TRUE(recorder.began.empty());
  });
  EXPECT_EQ(recorder.ended, std::vector{1});
}

TEST(EventQueue, AHandlerMayClearWhatFollows) {
  Recorder recorder;
  recorder.within = [&](int) { recorder.queue.clear(); };
  recorder.queue.push(1);
  recorder.queue.push(2);
  recorder.queue.drain();
  EXPECT_EQ(recorder.ended, std::vector{1});
}

TEST(EventQueue, GoesOnAfterAHandlerThrew) {
  Recorder recorder;
  recorder.within = [](int event) {
    if (event == 1) throw std::runtime_error("broken");
  };
  recorder.queue.push(1);
  recorder.queue.push(2);
  EXPECT_THROW(recorder.queue.drain(), std::runtime_error);
  recorder.queue.feed(3);
  EXPECT_EQ(recorder.ended, (std::vector{2, 3}));
}

}  // namespace
}  // namespace skerry
