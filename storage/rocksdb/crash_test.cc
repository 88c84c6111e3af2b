// SPDX-License-Identifier: Apache-2.0
// S4, S6, S7 on a real disk: a writer is killed at drawn moments; what it
// acknowledged is whole afterwards.
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>

#include "base/random.h"
#include "base/temp_folder.h"
#include "storage/rocksdb/crash_script.h"
#include "storage/rocksdb/rocksdb_store.h"

namespace skerry::storage {
namespace {

// Kills the writer a random moment after it has acknowledged `lines`
// checkpoints. Returns the last number that it acknowledged, read to the end of
// the pipe.
unsigned write_until_killed(const std::string& folder, unsigned first, unsigned lines,
                            std::uint64_t spins) {
  int pipe_ends[2];
  EXPECT_EQ(::pipe(pipe_ends), 0);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, pipe_ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_addclose(&actions, pipe_ends[0]);
  std::string program = CRASH_WRITER;
  std::string path = folder;
  std::string number = std::to_string(first);
  char* arguments[] = {program.data(), path.data(), number.data(), nullptr};
  pid_t child = 0;
  EXPECT_EQ(posix_spawn(&child, program.c_str(), &actions, nullptr, arguments, environ), 0);
  posix_spawn_file_actions_destroy(&actions);
  ::close(pipe_ends[1]);
  std::FILE* out = ::fdopen(pipe_ends[0], "r");
  unsigned last = 0;
  for (unsigned seen = 0; seen < lines; ++seen) EXPECT_EQ(std::fscanf(out, "%u", &last), 1);
  for (volatile std::uint64_t spin = 0; spin < spins;) spin = spin + 1;
  ::kill(child, SIGKILL);
  for (unsigned more = 0; std::fscanf(out, "%u", &more) == 1;) last = more;
  std::fclose(out);
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status)) << "the writer ended by itself";
  return last;
}

void expect_whole(const Store& store, unsigned number) {
  for (unsigned chunk = 0; chunk < kScriptedChunks; ++chunk) {
    const std::string bytes = scripted_chunk(number, chunk);
    EXPECT_EQ(store.get_chunk(scripted_family(number), blake2b(bytes)), bytes)
        << number << ":" << chunk;
  }
}

TEST(RocksDbCrash, what_was_acknowledged_is_whole_after_every_kill) {
  TempFolder folder;
  Stream random(Position{.seed = 11, .purpose = Purpose::kSimulation});
  unsigned next = 0;
  for (int life = 0; life < 12; ++life) {
    const auto lines = static_cast<unsigned>(1 + random.below(6));
    const unsigned last = write_until_killed(folder.path(), next, lines, random.below(20'000'000));
    const auto store = open_rocksdb_store(folder.path());
    ASSERT_TRUE(store.has_value()) << store.error().message;
    EXPECT_TRUE((*store)->get(scripted_key(last))->has_value()) << last << " was acknowledged";
    unsigned committed = 0;
    const auto entries = (*store)->scan("manifest/");
    ASSERT_TRUE(entries.has_value());
    for (const Entry& entry : *entries) {
      const auto number = static_cast<unsigned>(std::stoul(entry.key.substr(9)));
      expect_whole(**store, number);
      next = std::max(next, number + 1);
      ++committed;
    }
    EXPECT_GE(committed, 1U);
    EXPECT_LE(committed, 4U);
  }
}

}  // namespace
}  // namespace skerry::storage
