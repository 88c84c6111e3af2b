// SPDX-License-Identifier: Apache-2.0
#include "daemon/core/idle.h"

#include "base/text.h"

namespace skerry::daemon {
namespace {

constexpr Duration kKillAgain = seconds(5);

}  // namespace

bool Idle::advance(bool has_work, bool leaves, Context& context) {
  if (limit_ <= Duration{}) return false;
  const Phase before = phase_;
  if (phase_ == Phase::kRuns) {
    if (has_work || context.due(until_)) kill(context);
    return false;
  }
  if (has_work || leaves) {
    phase_ = Phase::kWorks;
    words_.clear();
  } else if (phase_ == Phase::kWorks) {
    phase_ = Phase::kRests;
    since_ = context.now.boot;
  }
  if (phase_ == Phase::kRests && context.due(since_ + limit_)) phase_ = Phase::kAsks;
  if (phase_ == Phase::kEnded && context.due(until_)) {
    words_ = text("this node still lives ", human_duration(kIdleLivesOn),
                  " after its --idle-exec: it works again");
    context.log(LogLevel::kWarning, words_);
    phase_ = Phase::kSpent;
  }
  return phase_ != before;
}

void Idle::may_stop(Context& context) {
  if (phase_ != Phase::kAsks) return;
  phase_ = Phase::kRuns;
  until_ = context.now.boot + kIdleExecLimit;
  killed_ = false;
  words_ = text("idle for ", human_duration(context.now.boot - since_), ": --idle-exec runs");
  context.log(LogLevel::kInfo, words_);
  context.out.idle_exec = IdleExecOrder::kStart;
  context.wake(until_);
}

void Idle::kill(Context& context) {
  context.out.idle_exec = IdleExecOrder::kKill;
  killed_ = true;
  until_ = context.now.boot + kKillAgain;
  context.wake(until_);
}

void Idle::ended(const IdleExecEnded& event, Context& context) {
  if (phase_ != Phase::kRuns) return;
  if (event.ok) {
    phase_ = Phase::kEnded;
    until_ = context.now.boot + kIdleLivesOn;
    context.log(LogLevel::kInfo, "--idle-exec has ended");
    return;
  }
  phase_ = Phase::kSpent;
  words_ = killed_ ? text("--idle-exec did not end within ", human_duration(kIdleExecLimit),
                          " and was killed")
                   : text("--idle-exec failed: ", event.how);
  context.log(LogLevel::kError, words_ + ": expected a command that ends with exit code 0");
}

}  // namespace skerry::daemon
