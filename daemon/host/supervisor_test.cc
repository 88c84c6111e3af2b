// SPDX-License-Identifier: Apache-2.0
// The supervisor with real processes: the fake engine, and programs that
// misbehave.
#include "daemon/host/supervisor.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <optional>

#include "base/temp_folder.h"
#include "storage/files.h"
#include "storage/safetensors.h"
#include "tests/fake_engine/chain.h"

namespace skerry::daemon {
namespace {

using testing::HasSubstr;

// Traces a process. A parent cannot reap a traced child before the tracer has
// seen its end, just as a child in the uninterruptible sleep of a driver.
class Holder {
 public:
  explicit Holder(pid_t held) {
    std::array<int, 2> ours{}, theirs{};
    EXPECT_EQ(::pipe2(ours.data(), O_CLOEXEC), 0);
    EXPECT_EQ(::pipe2(theirs.data(), O_CLOEXEC), 0);
    tracer_ = ::fork();
    if (tracer_ == 0) {
      ::close(ours[1]);
      const char holds = ::ptrace(PTRACE_SEIZE, held, nullptr, nullptr) == 0 ? 'y' : 'n';
      char until_closed = 0;
      if (::write(theirs[1], &holds, 1) == 1 && ::read(ours[0], &until_closed, 1) >= 0) ::_exit(0);
      ::_exit(1);
    }
    ::close(ours[0]);
    ::close(theirs[1]);
    lifeline_ = UniqueFd(ours[1]);
    const UniqueFd answer(theirs[0]);
    char holds = 'n';
    holds_ = ::read(answer.get(), &holds, 1) == 1 && holds == 'y';
  }
  ~Holder() {
    lifeline_.reset();
    ::waitpid(tracer_, nullptr, 0);
  }
  Holder(const Holder&) = delete;
  Holder& operator=(const Holder&) = delete;
  bool holds() const { return holds_; }

 private:
  pid_t tracer_ = -1;
  UniqueFd lifeline_;
  bool holds_ = false;
};

class SupervisorTest : public testing::Test {
 protected:
  SupervisorTest() {
    sigset_t child;
    ::sigemptyset(&child);
    ::sigaddset(&child, SIGCHLD);
    ::sigprocmask(SIG_BLOCK, &child, nullptr);
    signals_ = UniqueFd(::signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK));
    EXPECT_TRUE(storage::PartialFile::create(shard()).value().commit().has_value());
  }
  ~SupervisorTest() override {
    for (const char* name :
         {"SKERRY_FAKE_CRASH_AT", "SKERRY_FAKE_HANG_AT", "SKERRY_FAKE_NON_FINITE_AT",
          "SKERRY_FAKE_OUT_OF_MEMORY_AT", "SKERRY_FAKE_STEP_MS"}) {
      ::unsetenv(name);
    }
  }

  std::string shard() const { return folder_ / "shard"; }

  void start(Step steps, UniqueFd resume = {}, std::uint64_t resume_bytes = 0) {
    pb::EngineRequest::Start start;
    start.mutable_model()->set_image_size(28);
    start.mutable_model()->set_channels(1);
    start.mutable_model()->set_patch_size(4);
    start.mutable_model()->set_width(64);
    start.mutable_model()->set_depth(2);
    start.mutable_model()->set_heads(2);
    auto& train = *start.mutable_train();
    train.set_seed(7);
    train.set_steps(steps);
    train.set_batch_size(8);
    train.set_learning_rate(1e-3);
    train.set_precision("fp32");
    train.set_threads(1);
    start.set_expert(2);
    start.add_shard_paths(shard());
    start.mutable_plan()->set_round_steps(10);
    start.set_resume_bytes(resume_bytes);
    start.set_device(-1);
    StartEngine order{.slot = 1, .engine = 5};
    supervisor_.start_with(order, std::move(start), resume.get());
  }

  // The next event; everything that engines and signals say is waited for,
  // never a time.
  Event next() {
    while (queue_.empty()) {
      std::vector<pollfd> fds{{signals_.get(), POLLIN, 0}};
      for (const int fd : supervisor_.descriptors()) fds.push_back({fd, POLLIN, 0});
      if (::poll(fds.data(), fds.size(), supervisor_.has_events() ? 0 : -1) < 0) continue;
      supervisor_.pump();
      reap();
      for (Event& event : supervisor_.take_events()) queue_.push_back(std::move(event));
    }
    Event event = std::move(queue_.front());
    queue_.pop_front();
    return event;
  }
  template <class Kind>
  Kind wait_for() {
    while (true) {
      Event event = next();
      if (const auto* wanted = std::get_if<Kind>(&event)) return *wanted;
      if (std::holds_alternative<EngineSnapshot>(event)) supervisor_.release_snapshot(5);
      if (const auto* exited = std::get_if<EngineExited>(&event)) {
        ADD_FAILURE() << "the engine ended first: " << exited->how << ": "
                      << testing::PrintToString(exited->last_lines);
        return {};
      }
    }
  }
  void reap() {
    signalfd_siginfo signal{};
    while (::read(signals_.get(), &signal, sizeof signal) == sizeof signal) {
    }
    int status = 0;
    for (pid_t pid; (pid = ::waitpid(-1, &status, WNOHANG)) > 0;) supervisor_.reaped(pid, status);
  }
  fake::Chain shown() {
    const auto snapshot = supervisor_.snapshot(5);
    const auto file = snapshot->tensors();
    return fake::Chain::decode(file.value()).value();
  }
  static fake::Chain expected(Step step) {
    fake::Chain chain = fake::Chain::start(7, 2);
    while (chain.step < step) chain.advance(0);
    return chain;
  }

  TempFolder folder_;
  UniqueFd signals_;
  Supervisor supervisor_{{FAKE_ENGINE, "train"}};
  std::deque<Event> queue_;
};

TEST_F(SupervisorTest, TrainsSnapshotsAndFinishes) {
  start(25);
  EXPECT_EQ(wait_for<EngineStarting>().phase, "loading the program");
  EXPECT_EQ(wait_for<EngineStarting>().phase, "reading the shards");
  EXPECT_EQ(wait_for<EngineReady>().ready.step(), 0U);
  for (const Step to : {10U, 20U, 25U}) {
    EXPECT_EQ(wait_for<EngineSnapshot>().snapshot.to_step(), to);
    EXPECT_EQ(shown().state, expected(to).state);
    supervisor_.release_snapshot(5);
  }
  EXPECT_TRUE(wait_for<EngineFinished>().finished.complete());
  const auto exited = wait_for<EngineExited>();
  EXPECT_EQ(exited.how, "exit code 0");
  EXPECT_EQ(exited.slot, 1U);
}

TEST_F(SupervisorTest, ResumesFromTheMemoryItIsGiven) {
  const std::string bytes = expected(10).encode(16).value();
  UniqueFd memory(::memfd_create("resume", MFD_CLOEXEC));
  ASSERT_TRUE(storage::write_all(memory.get(), bytes, "resume").has_value());
  start(12, std::move(memory), bytes.size());
  EXPECT_EQ(wait_for<EngineReady>().ready.step(), 10U);
  EXPECT_EQ(wait_for<EngineSnapshot>().snapshot.to_step(), 12U);
  EXPECT_EQ(shown().state, expected(12).state);
}

TEST_F(SupervisorTest, ASnapshotStaysReadableAfterItsEngineEnded) {
  start(10);
  wait_for<EngineSnapshot>();
  supervisor_.stop({1, 5, StopKind::kKill});
  wait_for<EngineExited>();
  EXPECT_EQ(shown().state, expected(10).state);
  supervisor_.release_snapshot(5);
  EXPECT_EQ(supervisor_.snapshot(5), nullptr);
}

TEST_F(SupervisorTest, ACrashComesWithTheSignalAndTheLastLines) {
  ::setenv("SKERRY_FAKE_CRASH_AT", "3", 1);
  start(100);
  wait_for<EngineReady>();
  const auto exited = wait_for<EngineExited>();
  EXPECT_THAT(exited.how, HasSubstr("signal 6"));
  EXPECT_THAT(exited.last_lines, testing::Contains(HasSubstr("crashing at step 3")));
  EXPECT_FALSE(exited.killed_for_memory);
  EXPECT_THAT(supervisor_.take_lines(), testing::Contains("engine 1: crashing at step 3 as told"));
}

TEST_F(SupervisorTest, AHungEngineCanBeKilled) {
  ::setenv("SKERRY_FAKE_HANG_AT", "1", 1);
  start(100);
  wait_for<EngineReady>();
  supervisor_.stop({1, 5, StopKind::kKill});
  const auto exited = wait_for<EngineExited>();
  EXPECT_THAT(exited.how, HasSubstr("signal 9"));
  EXPECT_FALSE(exited.killed_for_memory);
}

TEST_F(SupervisorTest, AKillThatIsNotOursIsTakenForMemory) {
  ::setenv("SKERRY_FAKE_HANG_AT", "1", 1);
  start(100);
  wait_for<EngineReady>();
  ::kill(supervisor_.process_id(5), SIGKILL);
  EXPECT_TRUE(wait_for<EngineExited>().killed_for_memory);
}

TEST_F(SupervisorTest, FailuresAreToldBeforeTheEnd) {
  ::setenv("SKERRY_FAKE_NON_FINITE_AT", "2", 1);
  start(100);
  EXPECT_EQ(wait_for<EngineFailed>().failed.failure(), pb::EngineEvent::FAILURE_NON_FINITE);
  EXPECT_EQ(wait_for<EngineExited>().how, "exit code 1");
}

TEST_F(SupervisorTest, StopsWithASnapshotOfWhereItIs) {
  ::setenv("SKERRY_FAKE_STEP_MS", "100000000", 1);
  const std::string bytes = expected(4).encode(16).value();
  UniqueFd memory(::memfd_create("resume", MFD_CLOEXEC));
  ASSERT_TRUE(storage::write_all(memory.get(), bytes, "resume").has_value());
  start(100, std::move(memory), bytes.size());
  wait_for<EngineReady>();
  supervisor_.stop({1, 5, StopKind::kSnapshotNow});
  const auto finished = wait_for<EngineFinished>();
  EXPECT_EQ(finished.finished.step(), 4U);  // no step was taken since, so no snapshot either
  EXPECT_FALSE(finished.finished.complete());
  EXPECT_EQ(wait_for<EngineExited>().how, "exit code 0");
}

TEST_F(SupervisorTest, ATruncatedChannelFrameEndsTheEngine) {
  Supervisor other({"/bin/bash", "-c", "printf '\\377\\377\\377\\177' >&$1; exec sleep 1000"});
  std::swap(supervisor_, other);
  start(1);
  EXPECT_THAT(wait_for<EngineFailed>().failed.reason(), HasSubstr("channel's rules"));
  EXPECT_THAT(wait_for<EngineExited>().how, HasSubstr("signal 9"));
}

TEST_F(SupervisorTest, AProgramThatCannotRunSaysWhy) {
  Supervisor other({folder_ / "absent"});
  std::swap(supervisor_, other);
  start(1);
  const auto exited = wait_for<EngineExited>();
  EXPECT_EQ(exited.how, "exit code 127");
  EXPECT_THAT(exited.last_lines, testing::Contains(HasSubstr("No such file")));
}

TEST_F(SupervisorTest, TheEngineDiesWithItsDaemon) {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);  // its orphans come to us
  ::setenv("SKERRY_FAKE_HANG_AT", "1", 1);
  std::array<int, 2> pipe{};
  ASSERT_EQ(::pipe(pipe.data()), 0);
  const pid_t daemon = ::fork();
  if (daemon == 0) {
    start(100);
    const pid_t engine = supervisor_.process_id(5);
    if (::write(pipe[1], &engine, sizeof engine) < 0) ::_exit(1);
    while (true) ::pause();
  }
  pid_t engine = 0;
  ASSERT_EQ(::read(pipe[0], &engine, sizeof engine), static_cast<ssize_t>(sizeof engine));
  ::kill(daemon, SIGKILL);
  int status = 0;
  ASSERT_EQ(::waitpid(daemon, &status, 0), daemon);
  // By the signal, or by itself where it sees its parent gone first; one that
  // lived on would hang here.
  ASSERT_EQ(::waitpid(engine, &status, 0), engine);
  ::close(pipe[0]);
  ::close(pipe[1]);
}

TEST(FindEngine, NamesWhatIsNoProgram) {
  EXPECT_THAT(find_engine("/absent/engine").error().message, HasSubstr("/absent/engine"));
  EXPECT_EQ(find_engine(FAKE_ENGINE).value(), FAKE_ENGINE);
}

TEST_F(SupervisorTest, AnEngineThatCannotEndDoesNotHoldTheDaemon) {
  pid_t engine = -1;
  std::optional<Holder> holder;
  {
    Supervisor held({FAKE_ENGINE, "train"}, std::chrono::milliseconds(1));
    std::swap(supervisor_, held);
    start(1'000'000);
    wait_for<EngineReady>();
    engine = supervisor_.process_id(5);
    holder.emplace(engine);
    std::swap(supervisor_, held);
  }
  if (!holder->holds()) GTEST_SKIP() << "this machine lets nobody trace";
  EXPECT_EQ(::kill(engine, 0), 0) << "it has ended: nothing was shown";
}

TEST_F(SupervisorTest, AnEngineSeesItsCardAlone) {
  ::setenv("CUDA_VISIBLE_DEVICES", "0,1", 1);
  auto process =
      EngineProcess::spawn({"/bin/sh", "-c", "echo sees $CUDA_VISIBLE_DEVICES"}, "GPU-a");
  ::unsetenv("CUDA_VISIBLE_DEVICES");
  ASSERT_TRUE(process.has_value());
  std::vector<std::string> lines;
  for (pollfd output{process->output_fd(), POLLIN, 0}; lines.empty() && ::poll(&output, 1, -1) > 0;)
    lines = process->read_output();
  EXPECT_THAT(lines, testing::ElementsAre("sees GPU-a"));
}

}  // namespace
}  // namespace skerry::daemon
