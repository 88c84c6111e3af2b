// SPDX-License-Identifier: Apache-2.0
// Each sync of a program that keeps objects fails in turn, and every third
// write. What the program calls durable is whole at the next start (S4, S7),
// and the store knows of each failure.
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <vector>

#include "base/temp_folder.h"
#include "storage/object_store.h"
#include "storage/rocksdb/rocksdb_store.h"
#include "storage/testing/testing.h"

namespace skerry::storage {
namespace {

struct Outcome {
  std::vector<Hash> durable;
  bool fired = false;
  int status = 0;
};

Outcome run_probe(const std::string& folder, const std::string& what, int at) {
  int ends[2];
  EXPECT_EQ(::pipe(ends), 0);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
  posix_spawn_file_actions_addclose(&actions, ends[0]);
  std::vector<std::string> variables = {std::string("LD_PRELOAD=") + FAIL_DISK,
                                        "SKERRY_FAIL_FOLDER=" + folder, "SKERRY_FAIL_WHAT=" + what,
                                        "SKERRY_FAIL_AT=" + std::to_string(at)};
  std::vector<char*> environment;
  for (std::string& each : variables) environment.push_back(each.data());
  environment.push_back(nullptr);
  std::string program = FAIL_DISK_PROBE;
  std::string path = folder;
  char* arguments[] = {program.data(), path.data(), nullptr};
  pid_t child = 0;
  EXPECT_EQ(posix_spawn(&child, program.c_str(), &actions, nullptr, arguments, environment.data()),
            0);
  posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  Outcome outcome;
  std::FILE* said = ::fdopen(ends[0], "r");
  char line[4096];
  while (std::fgets(line, sizeof line, said) != nullptr) {
    std::string words = line;
    words.pop_back();
    outcome.fired = outcome.fired || words.starts_with("fail_disk: ");
    if (words.starts_with("durable "))
      outcome.durable.push_back(value_of(Hash::from_raw(value_of(from_hex(words.substr(8))))));
    if (words.starts_with("not noticed: ")) ADD_FAILURE() << what << " " << at << ": " << words;
  }
  std::fclose(said);
  EXPECT_EQ(::waitpid(child, &outcome.status, 0), child);
  return outcome;
}

class FailDisk : public testing::TestWithParam<std::string> {};

TEST_P(FailDisk, what_is_called_durable_is_whole_at_the_next_start) {
  bool fired = true;
  int at = 1;
  for (; fired; at += GetParam() == "sync" ? 1 : 3) {
    const TempFolder folder;
    const Outcome outcome = run_probe(folder.path(), GetParam(), at);
    fired = outcome.fired;
    // RocksDB aborts where it cannot write while it opens: nothing is promised
    // then.
    EXPECT_TRUE(outcome.status == 0 || (WIFSIGNALED(outcome.status) && outcome.durable.empty()))
        << GetParam() << " " << at << ": status " << outcome.status;
    if (!fired) {
      EXPECT_EQ(outcome.durable.size(), 2U) << "where nothing fails";
    }
    if (outcome.durable.empty()) continue;
    const auto store = open_rocksdb_store(folder / "store", {.reserve_bytes = 0});
    ASSERT_TRUE(store.has_value()) << at << ": " << store.error().message;
    const auto objects =
        value_of(ObjectStore::open(**store, folder / "objects", Checkpoints::kAsFiles));
    for (const Hash& name : outcome.durable) {
      ASSERT_TRUE(objects->has(name)) << GetParam() << " " << at;
      EXPECT_TRUE(objects->check(name).has_value())
          << GetParam() << " " << at << ": it was called durable";
    }
  }
  EXPECT_GT(at, 10) << "it failed hardly anything";
}

INSTANTIATE_TEST_SUITE_P(Failures, FailDisk, testing::Values("sync", "write", "torn", "space"),
                         [](const auto& what) { return what.param; });

}  // namespace
}  // namespace skerry::storage
