// SPDX-License-Identifier: Apache-2.0
#include "daemon/host/idle_command.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/temp_folder.h"
#include "base/unique_fd.h"

namespace skerry::daemon {
namespace {

// Reaps as the loop does.
IdleExecEnded end_of(IdleCommand& command) {
  int status = 0;
  const pid_t pid = ::waitpid(-1, &status, 0);
  EXPECT_TRUE(command.reaped(pid, status));
  EXPECT_FALSE(command.reaped(pid, status));
  const std::optional<IdleExecEnded> end = command.take_end();
  EXPECT_TRUE(end.has_value());
  EXPECT_FALSE(command.take_end().has_value());
  return end.value_or(IdleExecEnded{});
}

TEST(IdleCommand, EndsWithItsStatus) {
  IdleCommand good("exit 0");
  good.start();
  EXPECT_TRUE(end_of(good).ok);
  IdleCommand bad("exit 3");
  bad.start();
  const IdleExecEnded end = end_of(bad);
  EXPECT_FALSE(end.ok);
  EXPECT_EQ(end.how, "exit code 3");
  IdleCommand none("/nonexistent/program");
  none.start();
  EXPECT_EQ(end_of(none).how, "exit code 127");
}

TEST(IdleCommand, AKillEndsAllThatItStarted) {
  TempFolder folder;
  const std::string fifo = folder / "fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  IdleCommand command("(exec sleep 100000 > " + fifo + ") & wait");
  command.start();
  const UniqueFd read_end(::open(fifo.c_str(), O_RDONLY));  // once the sleeper has opened it
  ASSERT_TRUE(read_end);
  command.kill();
  EXPECT_EQ(end_of(command).how, "signal 9");
  char byte = 0;
  EXPECT_EQ(::read(read_end.get(), &byte, 1), 0);  // nobody writes any more
}

TEST(IdleCommand, AnotherChildIsNotIts) {
  IdleCommand command("exit 0");
  EXPECT_FALSE(command.reaped(1, 0));
  command.kill();
  EXPECT_FALSE(command.take_end().has_value());
}

}  // namespace
}  // namespace skerry::daemon
