// SPDX-License-Identifier: Apache-2.0
// The whole daemon in one process but for its engine, which is a real child: a
// scripted coordinator answers at once.
#include "daemon/host/loop.h"

#include <gmock/gmock.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>

#include "base/temp_folder.h"
#include "protocol/validate.h"
#include "storage/files.h"
#include "storage/layout.h"
#include "storage/testing/memory_store.h"
#include "tests/fake_engine/chain.h"

namespace skerry::daemon {
namespace {

constexpr std::uint64_t kEpoch = Epoch(1, 5).value();

// Answers each request as a coordinator would that grants one expert and takes
// every commit that goes on from its head.
class Coordinator final : public protocol::ClientTransport {
 public:
  void dial(protocol::Endpoint endpoint) override { due_.push_back(protocol::Opened{endpoint}); }
  void hang_up(protocol::Endpoint) override {}
  Result<void> send(protocol::Endpoint endpoint, std::string_view bytes) override {
    if (endpoint != protocol::Endpoint::kControl) return {};
    const auto request = protocol::parse_control_request(bytes);
    EXPECT_TRUE(request.has_value()) << request.error().message;
    if (request) answer(*request);
    return {};
  }
  Result<std::vector<int>> poll(Duration timeout, std::span<const int> readable,
                                const Handler& handle) override {
    if (engines_end_first) {
      // Where there is a child, until it has ended; then a word that the daemon
      // hears before it looks at its engines.
      siginfo_t ended{};
      if (::waitid(P_ALL, 0, &ended, WEXITED | WNOWAIT) == 0) {
        pb::ControlReply unasked;
        unasked.set_id(~std::uint64_t{0});
        unasked.mutable_ack();
        due_.push_back(
            protocol::Received{protocol::Endpoint::kControl, unasked.SerializeAsString()});
      }
    }
    std::vector<pollfd> fds;
    for (const int fd : readable) fds.push_back({fd, POLLIN, 0});
    const auto wait_ms =
        due_.empty() ? std::chrono::ceil<std::chrono::milliseconds>(timeout).count() : 0;
    ::poll(fds.data(), fds.size(), static_cast<int>(wait_ms));
    for (const auto& event : std::exchange(due_, {})) handle(event);
    std::vector<int> ready;
    for (const pollfd& fd : fds) {
      if (fd.revents != 0) ready.push_back(fd.fd);
    }
    return ready;
  }

  pb::SlotAssignment assignment;
  bool assigned = true;
  std::optional<pb::Replica> replica;
  std::uint64_t changes = 0;  // to what it assigns, after the start
  bool engines_end_first = false;
  std::vector<pb::Commit> commits;
  std::vector<pb::EngineReport> reports;
  bool returned = false;
  std::function<void(const pb::ControlRequest&)> on_request = [](const pb::ControlRequest&) {};

 private:
  std::uint64_t version() const { return changes + (assigned ? 1 : 2); }
  void answer(const pb::ControlRequest& request) {
    pb::ControlReply reply;
    reply.set_id(request.id());
    switch (request.body_case()) {
      case pb::ControlRequest::kHello: {
        auto& hello = *reply.mutable_hello();
        *hello.mutable_version() = protocol::own_version();
        hello.set_generation(1);
        hello.set_heartbeat_ms(20);
        hello.set_lease_ms(60'000);
        hello.set_assignment_version(1);
        hello.set_node_id(std::string(32, 'a'));
        hello.set_role(pb::ROLE_NODE);
        hello.set_name("node");
        break;
      }
      case pb::ControlRequest::kHeartbeat: {
        auto& heartbeat = *reply.mutable_heartbeat();
        heartbeat.set_sequence(request.heartbeat().sequence());
        heartbeat.set_assignment_version(version());
        auto& lease = *heartbeat.add_renewed();
        lease.set_run(assignment.run());
        lease.set_expert(assignment.expert());
        lease.set_epoch(kEpoch);
        break;
      }
      case pb::ControlRequest::kGetAssignment:
        reply.mutable_assignment()->set_version(version());
        if (assigned) *reply.mutable_assignment()->add_slots() = assignment;
        if (replica) *reply.mutable_assignment()->add_replicas() = *replica;
        break;
      case pb::ControlRequest::kCommit: {
        const pb::Commit& commit = request.commit();
        reply.mutable_commit()->set_run(commit.run());
        reply.mutable_commit()->set_expert(commit.expert());
        reply.mutable_commit()->set_epoch(commit.epoch());
        const bool goes_on = commit.parent() == assignment.head().manifest();
        reply.mutable_commit()->set_status(goes_on ? pb::COMMIT_ACCEPTED : pb::COMMIT_STALE_PARENT);
        if (goes_on) {
          commits.push_back(commit);
          *assignment.mutable_head() = commit.manifest();
          assignment.set_head_step(commit.to_step());
        }
        *reply.mutable_commit()->mutable_head() = assignment.head();
        reply.mutable_commit()->set_head_step(assignment.head_step());
        break;
      }
      case pb::ControlRequest::kReturnLease:
        returned = true;
        assigned = false;
        reply.mutable_ack();
        break;
      case pb::ControlRequest::kEngineReport:
        reports.push_back(request.engine_report());
        [[fallthrough]];
      default:
        reply.mutable_ack();
    }
    due_.push_back(protocol::Received{protocol::Endpoint::kControl, reply.SerializeAsString()});
    on_request(request);
  }

  std::vector<protocol::ClientEvent> due_;
};

class HostTest : public testing::Test {
 protected:
  HostTest() {
    sigset_t wanted;
    ::sigemptyset(&wanted);
    for (const int number : {SIGTERM, SIGINT, SIGCHLD}) ::sigaddset(&wanted, number);
    ::sigprocmask(SIG_BLOCK, &wanted, nullptr);
    signals_ = UniqueFd(::signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK));
    grant(40);
  }
  ~HostTest() override {
    for (const char* name :
         {"SKERRY_FAKE_CRASH_AT", "SKERRY_FAKE_ONCE", "SKERRY_FAKE_STEP_MS", "SKERRY_FAKE_WAIT_AT"})
      ::unsetenv(name);
  }

  void grant(Step steps) {
    auto& slot = coordinator_.assignment;
    slot.set_run("r-0123456789");
    slot.set_expert(2);
    slot.set_epoch(kEpoch);
    slot.set_steps_target(steps);
    auto& model = *slot.mutable_model();
    model.set_image_size(28);
    model.set_channels(1);
    model.set_patch_size(4);
    model.set_width(64);
    model.set_depth(2);
    model.set_heads(2);
    auto& spec = *slot.mutable_spec();
    spec.set_name("run");
    spec.set_dataset("data");
    spec.set_width(64);
    spec.set_depth(2);
    spec.set_heads(2);
    spec.set_patch_size(4);
    spec.set_round_steps(10);
    spec.set_offline_rounds(10);
    spec.set_copies(1);
    spec.set_keep(2);
    spec.set_turn_rounds(5);
    spec.set_router_kind("analytic");
    auto& train = *spec.mutable_train();
    train.set_seed(7);
    train.set_steps(steps);
    train.set_batch_size(8);
    train.set_learning_rate(1e-3);
    train.set_ema(0.999);
    train.set_precision("fp32");
    train.set_threads(1);
    if (slot.shards_size() == 0)
      *slot.add_shards() = add_object("shard-2-0.safetensors", "the bytes of a shard");
  }

  // Stored and whole.
  pb::ObjectRef add_object(const std::string& name, const std::string& bytes) {
    const std::string path = folder_ / "source";
    storage::PartialFile file = storage::PartialFile::create(path).value();
    EXPECT_TRUE(file.append(bytes).has_value());
    EXPECT_TRUE(file.commit().has_value());
    const auto manifest = storage::build_file_manifest(path, name).value();
    EXPECT_TRUE(objects_->begin(manifest).has_value());
    EXPECT_TRUE(objects_->put(manifest.name, blake2b(bytes), bytes).has_value());
    EXPECT_TRUE(objects_->seal(manifest.name).has_value());
    pb::ObjectRef object;
    object.set_manifest(manifest.name.raw());
    object.set_manifest_bytes(manifest.encoded.size());
    object.set_bytes(bytes.size());
    object.set_name(name);
    return object;
  }

  int run() {
    HostOptions options;
    options.slots.resize(1);
    options.slots[0].description.set_device("cpu");
    options.software = "skerryd test";
    options.incarnation = 9;
    Completions completions = std::move(*Completions::make());
    Supervisor engines({FAKE_ENGINE, "train"});
    ThreadWorker disk(completions);
    const auto host = Host::make({clock_, coordinator_, store_, *objects_, engines, disk}, options);
    EXPECT_TRUE(host.has_value());
    return skerry::daemon::run(
        **host, {clock_, coordinator_, engines, completions, notifier_, signals_.get(), nullptr});
  }
  static void terminate(int number = SIGTERM) { ::kill(::getpid(), number); }

  fake::Chain committed() {
    const Hash head = Hash::from_raw(coordinator_.assignment.head().manifest()).value();
    const auto resume = open_resume(*objects_, head).value();
    return fake::Chain::decode(
               storage::Safetensors::map(resume.file->descriptor(), resume.bytes).value())
        .value();
  }
  static fake::Chain expected(Step step) {
    fake::Chain chain = fake::Chain::start(7, 2);
    while (chain.step < step) chain.advance(0);
    return chain;
  }

  TempFolder folder_;
  SystemClock clock_;
  storage::MemoryStore store_;
  std::unique_ptr<storage::ObjectStore> objects_ =
      storage::ObjectStore::open(store_, folder_ / "objects", storage::Checkpoints::kAsFiles)
          .value();
  Notifier notifier_;
  UniqueFd signals_;
  Coordinator coordinator_;
};

TEST_F(HostTest, TrainsCommitsAndDrains) {
  coordinator_.on_request = [](const pb::ControlRequest& request) {
    if (request.has_commit() && request.commit().to_step() == 40) terminate();
  };
  EXPECT_EQ(run(), 0);
  EXPECT_EQ(coordinator_.assignment.head_step(), 40U);
  EXPECT_TRUE(coordinator_.returned);
  EXPECT_EQ(committed().state, expected(40).state);
  Step from = 0;
  for (const pb::Commit& commit : coordinator_.commits) {
    EXPECT_EQ(commit.from_step(), from);
    from = commit.to_step();
  }
}

TEST_F(HostTest, DrainingInTheMiddleCommitsWhatWasTrained) {
  grant(1'000'000'000);
  coordinator_.assignment.mutable_spec()->set_round_steps(1'000'000'000);
  coordinator_.on_request = [done = false](const pb::ControlRequest& request) mutable {
    if (done || !request.has_heartbeat() || request.heartbeat().slots(0).step() == 0) return;
    done = true;
    terminate();
  };
  EXPECT_EQ(run(), 0);
  ASSERT_EQ(coordinator_.commits.size(), 1U);
  EXPECT_GT(coordinator_.assignment.head_step(), 0U);
  EXPECT_EQ(committed().state, expected(coordinator_.assignment.head_step()).state);
  EXPECT_TRUE(coordinator_.returned);
}

// A slow daemon reads the last snapshot of an engine after the engine's end,
// behind other messages. The engine waits in the middle of a round until it is
// told to leave. An engine that waited for an earlier snapshot to be stored
// would not end while the daemon waits for its end.
class SlowHostTest : public HostTest, public testing::WithParamInterface<Step> {};

TEST_P(SlowHostTest, TheLastSnapshotOutlivesItsEngineUntilTheCoreHasHeardOfIt) {
  ::setenv("SKERRY_FAKE_WAIT_AT", "15", 1);
  grant(1'000'000'000);
  coordinator_.assignment.mutable_spec()->set_round_steps(GetParam());
  coordinator_.on_request = [this, asked = false](const pb::ControlRequest& request) mutable {
    if (!request.has_heartbeat()) return;
    if (request.heartbeat().draining()) coordinator_.engines_end_first = true;
    const bool first_of_many = GetParam() < 15 && coordinator_.commits.empty();
    if (asked || first_of_many || request.heartbeat().slots(0).step() < 15) return;
    asked = true;
    terminate();
  };
  EXPECT_EQ(run(), 0);
  EXPECT_EQ(coordinator_.commits.size(), GetParam() < 15 ? 2U : 1U);
  EXPECT_EQ(coordinator_.assignment.head_step(), 15U);
  EXPECT_EQ(committed().state, expected(15).state);
}

// It is the engine's first snapshot, or one of many.
INSTANTIATE_TEST_SUITE_P(Rounds, SlowHostTest, testing::Values(1'000'000'000, 10));

TEST_F(HostTest, ACrashedEngineGoesOnToTheSameBytes) {
  ::setenv("SKERRY_FAKE_CRASH_AT", "15", 1);
  ::setenv("SKERRY_FAKE_ONCE", (folder_ / "crashed").c_str(), 1);
  coordinator_.on_request = [](const pb::ControlRequest& request) {
    if (request.has_commit() && request.commit().to_step() == 40) terminate();
  };
  EXPECT_EQ(run(), 0);
  ASSERT_GE(coordinator_.reports.size(), 1U);
  EXPECT_THAT(coordinator_.reports[0].reason(), testing::HasSubstr("signal 6"));
  EXPECT_THAT(coordinator_.reports[0].last_lines(),
              testing::Contains(testing::HasSubstr("crashing at step 15")));
  EXPECT_EQ(committed().state, expected(40).state);
}

// A replica is ordered, dropped and ordered again while the disk does nothing.
// The look at the disk for the first order finds what the drop then removes.
TEST_F(HostTest, ALookAtTheDiskAnswersItsOwnOrderOnly) {
  coordinator_.assigned = false;
  HostOptions options;
  options.slots.resize(1);
  options.slots[0].description.set_device("cpu");
  options.software = "skerryd test";
  options.incarnation = 9;
  Supervisor engines({FAKE_ENGINE, "train"});
  ManualWorker disk;
  std::vector<Hash> stored;
  HostParts parts{clock_, coordinator_, store_, *objects_, engines, disk};
  parts.stepped = [&](const Event& event, const Effects&) {
    if (const auto* each = std::get_if<ObjectStored>(&event)) stored.push_back(each->manifest);
  };
  const auto host = Host::make(parts, options);
  ASSERT_TRUE(host.has_value());
  (*host)->start();
  int assignments = 0;
  coordinator_.on_request = [&](const pb::ControlRequest& request) {
    if (request.has_get_assignment()) ++assignments;
  };
  const auto disk_works = [&] {
    while (disk.waiting() > 0) {
      if (const Done done = disk.next()) done();
      (*host)->turn();
    }
  };
  const auto turn_until = [&](const auto& is_done) {
    for (int i = 0; i < 1000 && !is_done(); ++i) {
      ASSERT_TRUE(coordinator_.poll(std::chrono::milliseconds(1), {},
                                    [&](auto event) { (*host)->on_transport(std::move(event)); }));
      (*host)->turn();
    }
    ASSERT_TRUE(is_done());
  };
  // The coordinator assigns this, and the host has acted on it.
  const auto assign = [&](std::optional<pb::Replica> replica) {
    coordinator_.replica = std::move(replica);
    ++coordinator_.changes;
    const std::size_t waiting = disk.waiting();
    const int before = assignments;
    turn_until([&] { return assignments > before && disk.waiting() > waiting; });
  };
  turn_until([&] {
    disk_works();
    return assignments > 0;
  });
  pb::Replica replica;
  replica.set_run("r-0123456789");
  replica.set_expert(1);
  *replica.mutable_object() = add_object("checkpoint.safetensors", "the bytes of a checkpoint");
  const Hash object = Hash::from_raw(replica.object().manifest()).value();
  assign(replica);
  assign({});
  assign(replica);
  disk_works();
  EXPECT_FALSE(objects_->has(object));
  EXPECT_THAT(stored, testing::IsEmpty());
}

TEST_F(HostTest, ARestartedDaemonGoesOnFromItsHead) {
  grant(1'000'000'000);
  coordinator_.on_request = [](const pb::ControlRequest& request) {
    if (request.has_commit() && request.commit().to_step() >= 30) {
      terminate();
      terminate(SIGINT);  // the second one does not wait for a commit
    }
  };
  EXPECT_EQ(run(), 0);
  const Step before = coordinator_.assignment.head_step();
  coordinator_.returned = false;
  coordinator_.assigned = true;
  coordinator_.on_request = [before](const pb::ControlRequest& request) {
    if (request.has_commit() && request.commit().to_step() > before) terminate();
  };
  EXPECT_EQ(run(), 0);
  EXPECT_GT(coordinator_.assignment.head_step(), before);
  EXPECT_EQ(committed().state, expected(coordinator_.assignment.head_step()).state);
}

}  // namespace
}  // namespace skerry::daemon
