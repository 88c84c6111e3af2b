// SPDX-License-Identifier: Apache-2.0
// The real program on real sockets and disk, and the host over a disk that
// fails.
#include "coordinator/host/loop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <thread>

#include "base/temp_folder.h"
#include "coordinator/host/authority.h"
#include "coordinator/testing/builders.h"
#include "coordinator/testing/program_under_test.h"
#include "protocol/client.h"
#include "protocol/enrol.h"
#include "protocol/zmq_transport.h"
#include "storage/testing/faulty_store.h"
#include "storage/testing/memory_store.h"

namespace skerry::coordinator {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using testing::ProgramUnderTest;

constexpr Duration kHang = std::chrono::seconds(60);

class Program : public ::testing::Test {
 protected:
  std::filesystem::path data() const { return folder_.path() / "data"; }
  // A short lease: a restored coordinator answers nobody for five of them.
  std::vector<std::string> serve() const {
    return {"--data", data().string(), "--listen", "127.0.0.1:0", "--lease-seconds", "0.4"};
  }

  pb::AdminReply ask(const pb::AdminRequest& request) {
    auto client = protocol::Client::open(data() / "admin.toml", clock_, "test");
    EXPECT_TRUE(client) << client.error().message;
    if (!client) return {};
    auto reply = client->call(request, kHang);
    while (!reply && reply.error().message == kRecalling) {  // each time as another command would
      client = protocol::Client::open(data() / "admin.toml", clock_, "test");
      reply = client->call(request, kHang);
    }
    EXPECT_TRUE(reply) << reply.error().message;
    generation_ = client->hello().generation();
    return reply ? *reply : pb::AdminReply();
  }
  pb::AdminReply nodes() {
    pb::AdminRequest request;
    request.mutable_node_list();
    return ask(request);
  }

  std::string create_token() {
    pb::AdminRequest create;
    create.mutable_token_create()->set_role(pb::ROLE_VIEWER);
    create.mutable_token_create()->set_uses(3);
    create.mutable_token_create()->set_ttl_seconds(3600);
    return ask(create).token_created().info().id();
  }

  const SystemClock clock_{};
  TempFolder folder_;
  std::uint64_t generation_ = 0;
};

TEST_F(Program, ServesItsAdminAndKeepsEverythingThroughAKill) {
  auto program = std::make_unique<ProgramUnderTest>(serve());
  ASSERT_TRUE(program->says("--data DIR")) << program->said();
  const std::size_t at = program->said().find("skerry1.");
  const std::string printed = program->said().substr(at, program->said().find(' ', at) - at);
  const auto token = protocol::parse_token(printed, clock_.now().unix_ms);
  ASSERT_TRUE(token) << printed;

  const protocol::Identity node = protocol::Identity::generate();
  const auto join = [&](const protocol::JoinToken& with) {
    auto transport = protocol::make_zmq_client(node, {with.endpoints, with.coordinator_key});
    return protocol::enrol(**transport, clock_, with, node, "n1", kHang);
  };
  const auto enrolled = join(*token);
  ASSERT_TRUE(enrolled) << enrolled.error().message;
  const std::string created = create_token();
  program->kill_it();

  program = std::make_unique<ProgramUnderTest>(serve());
  ASSERT_TRUE(program->says("token create")) << program->said();
  EXPECT_THAT(program->said(), ::testing::Not(HasSubstr("skerry1.")));
  const pb::AdminReply kept = nodes();
  ASSERT_EQ(kept.nodes().nodes_size(), 1);
  EXPECT_EQ(kept.nodes().nodes(0).name(), "n1");
  pb::AdminRequest self;
  self.mutable_node_show()->set_name("admin");
  EXPECT_EQ(ask(self).nodes().nodes(0).address(), "127.0.0.1");
  pb::AdminRequest list;
  list.mutable_token_list();
  bool found = false;
  const pb::AdminReply tokens = ask(list);
  for (const pb::TokenInfo& info : tokens.tokens().tokens()) {
    if (info.id() == created) found = info.uses() == 3;
    if (info.id() == token->id.str()) {
      EXPECT_EQ(info.used(), 1U);
    }
  }
  EXPECT_TRUE(found);
  // The same key and token at the new address: the same certificate.
  protocol::JoinToken moved = *token;
  moved.endpoints = protocol::read_context(data() / "admin.toml")->endpoints;
  const auto again = join(moved);
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(again->certificate.SerializeAsString(), enrolled->certificate.SerializeAsString());
  EXPECT_EQ(program->terminate(), 0) << program->said();
}

TEST_F(Program, ABackupIsRestoredWithAHigherGeneration) {
  const std::string backup = (folder_.path() / "backup").string();
  std::string token;
  {
    ProgramUnderTest program(serve());
    ASSERT_TRUE(program.says("--data DIR"));
    nodes();
    EXPECT_EQ(generation_, 1U);
    token = create_token();
    ProgramUnderTest copy({"backup", backup, "--data", data().string()});
    EXPECT_EQ(copy.wait(), 0) << copy.said();
    ProgramUnderTest twice({"backup", backup, "--data", data().string()});
    EXPECT_EQ(twice.wait(), 1);
    EXPECT_THAT(twice.said(), HasSubstr("not empty"));
    create_token();  // it goes on as before
    EXPECT_EQ(program.terminate(), 0);
  }
  ProgramUnderTest onto({"restore", backup, "--data", data().string()});
  EXPECT_EQ(onto.wait(), 1);
  EXPECT_THAT(onto.said(), HasSubstr("not empty"));
  std::filesystem::remove_all(data());
  ProgramUnderTest restore({"restore", backup, "--data", data().string()});
  EXPECT_EQ(restore.wait(), 0) << restore.said();
  {
    ProgramUnderTest program(serve());
    ASSERT_TRUE(program.says("token create")) << program.said();
    nodes();
    EXPECT_EQ(generation_, 2U);
    pb::AdminRequest list;
    list.mutable_token_list();
    const pb::AdminReply tokens = ask(list);
    EXPECT_EQ(tokens.tokens().tokens_size(),
              2);  // the first start's, and the one before the backup
    EXPECT_TRUE(std::ranges::any_of(tokens.tokens().tokens(),
                                    [&](const pb::TokenInfo& info) { return info.id() == token; }));
    for (const pb::TokenInfo& info : tokens.tokens().tokens())
      EXPECT_LE(info.expires_unix_ms(), clock_.now().unix_ms) << "made before the restore";
    EXPECT_EQ(program.terminate(), 0);
  }
  std::filesystem::remove_all(data());
  ProgramUnderTest once_more({"restore", backup, "--data", data().string()});
  EXPECT_EQ(once_more.wait(), 0) << once_more.said();
}

TEST_F(Program, SaysWhyItCannotStart) {
  ProgramUnderTest program(serve());
  ASSERT_TRUE(program.says("--data DIR"));
  ProgramUnderTest same_folder(serve());
  EXPECT_EQ(same_folder.wait(), 1);
  EXPECT_THAT(same_folder.said(), ContainsRegex("another|in use"));

  ProgramUnderTest fresh({"restore", "--fresh", "--data", data().string()});
  EXPECT_EQ(fresh.wait(), 1);
  EXPECT_THAT(fresh.said(), HasSubstr("a coordinator runs on"));

  const std::string enrol = protocol::read_context(data() / "admin.toml")->endpoints.enrol;
  const std::string port = enrol.substr(enrol.rfind(':') + 1);
  ProgramUnderTest same_port(
      {"--data", (folder_.path() / "other").string(), "--listen", "127.0.0.1:" + port});
  EXPECT_EQ(same_port.wait(), 1);
  EXPECT_THAT(same_port.said(), HasSubstr(port));
  program.terminate();

  std::ofstream(data() / "store" / "VERSION") << "skerry store 999\n";
  ProgramUnderTest other_version(serve());
  EXPECT_EQ(other_version.wait(), 78);
  EXPECT_THAT(other_version.said(), HasSubstr("version"));
}

TEST_F(Program, BadConfigurationIsToldByItsPlace) {
  ProgramUnderTest no_data({"--listen", "127.0.0.1:0"});
  EXPECT_EQ(no_data.wait(), 78);
  EXPECT_THAT(no_data.said(), HasSubstr("--data DIR is needed"));
  ProgramUnderTest bad_flag({"--data", data().string(), "--lease-seconds", "soon"});
  EXPECT_EQ(bad_flag.wait(), 78);
  EXPECT_THAT(bad_flag.said(), HasSubstr("lease_seconds must be a number"));
  const std::string file = (folder_.path() / "c.toml").string();
  std::ofstream(file) << "listen = \"127.0.0.1:0\"\nlissen = 3\n";
  ProgramUnderTest unknown_key({"--config", file, "--data", data().string()});
  EXPECT_EQ(unknown_key.wait(), 78);
  EXPECT_THAT(unknown_key.said(), HasSubstr("c.toml:2: unknown key \"lissen\""));
  ProgramUnderTest no_address({"--data", data().string(), "--listen", "nowhere:x"});
  EXPECT_EQ(no_address.wait(), 78);
}

// Has no room for the next `refusals` writes.
class CrowdedStore final : public storage::MemoryStore {
 public:
  mutable std::atomic<int> refusals = 0;
  std::atomic<bool> shows_room = false;  // to who looks before a change
  Result<void> has_room(std::size_t bytes, bool metadata) const override {
    if (shows_room && bytes == 64 << 10) return {};
    if (refusals > 0 && refusals-- > 0) return fail(ErrorCode::kExhausted, "the disk is full");
    return MemoryStore::has_room(bytes, metadata);
  }
};

// A host in this process, with an admin who asks from another thread.
class HostOnFaultyDisk : public ::testing::Test {
 protected:
  HostOnFaultyDisk() {
    transport_ = std::move(*protocol::make_zmq_server(identity_, {}));
    endpoints_ = transport_->endpoints();
    objects_ = std::move(*storage::ObjectStore::open(store_, (folder_.path() / "objects").string(),
                                                     storage::Checkpoints::kInStore));
    HostOptions options;
    options.first_admin = {admin_.node_id(), admin_.ed25519_key(), admin_.x25519_key(), "admin"};
    auto made = Host::make({*transport_, store_, *objects_, identity_, authority_, clock_, rng_,
                            state_disk_, object_disk_, folder_.path().string()},
                           options);
    EXPECT_TRUE(made) << made.error().message;
    host_ = std::move(*made);
  }
  Result<pb::AdminReply> ask(const pb::AdminRequest& request, Duration within = kHang) {
    protocol::Client client(
        std::move(*protocol::make_zmq_client(admin_, {endpoints_, identity_.ed25519_key()})),
        clock_, "test");
    return client.call(request, within);
  }
  Result<void> run_host() { return run(*host_, *transport_, completions_, stop_.get()); }
  Result<pb::AdminReply> create_token(Duration within = kHang) {
    pb::AdminRequest request;
    request.mutable_token_create()->set_role(pb::ROLE_NODE);
    request.mutable_token_create()->set_uses(1);
    request.mutable_token_create()->set_ttl_seconds(60);
    return ask(request, within);
  }

  const SystemClock clock_{};
  TempFolder folder_;
  const protocol::Identity identity_ = protocol::Identity::generate();
  const protocol::Identity admin_ = protocol::Identity::generate();
  CrowdedStore disk_;
  storage::FaultyStore store_{disk_};
  std::unique_ptr<protocol::ServerTransport> transport_;
  protocol::Endpoints
      endpoints_;  // of its own: the person's thread reads it while `transport_` ends
  std::unique_ptr<storage::ObjectStore> objects_;
  SystemRng rng_;
  IdentityAuthority authority_{identity_};
  Completions completions_ = std::move(*Completions::make());
  ThreadWorker state_disk_{completions_};
  ThreadWorker object_disk_{completions_};
  std::unique_ptr<Host> host_;
  UniqueFd stop_{::eventfd(0, EFD_CLOEXEC)};
};

TEST_F(HostOnFaultyDisk, AnswersAndStops) {
  Result<pb::AdminReply> reply;
  std::thread person([&] {
    reply = create_token();
    ::eventfd_write(stop_.get(), 1);
  });
  const Result<void> ended = run_host();
  person.join();
  EXPECT_TRUE(ended) << ended.error().message;
  EXPECT_TRUE(reply) << reply.error().message;
}

TEST_F(HostOnFaultyDisk, AFullDiskIsWaitedForAndPeopleAreTold) {
  std::thread person([&] {
    pb::AdminRequest request;
    *request.mutable_dataset_add() = testing::dataset("images", 1);
    EXPECT_TRUE(ask(request));
    disk_.refusals = 1'000'000;
    EXPECT_EQ(create_token().error().code, ErrorCode::kExhausted) << "the first one already";
    request.mutable_token_list();
    Result<pb::AdminReply> tokens = ask(request);
    ASSERT_TRUE(tokens) << tokens.error().message;
    const int before = tokens->tokens().tokens_size();
    disk_.refusals = 0;
    // What frees room is answered only once all before it is written.
    request.mutable_dataset_delete()->set_name("images");
    EXPECT_TRUE(ask(request));
    request.mutable_token_list();
    tokens = ask(request);
    ASSERT_TRUE(tokens) << tokens.error().message;
    EXPECT_EQ(tokens->tokens().tokens_size(), before) << "what was refused was not done";
    const Result<pb::AdminReply> created = create_token();
    EXPECT_TRUE(created) << created.error().message;
    ::eventfd_write(stop_.get(), 1);
  });
  const Result<void> ended = run_host();
  person.join();
  EXPECT_TRUE(ended) << ended.error().message;
}

TEST_F(HostOnFaultyDisk, StoppedWhileItsDiskIsFullItHasPromisedNothing) {
  disk_.refusals = 1'000'000;
  disk_.shows_room = true;
  Result<pb::AdminReply> reply;
  std::thread person([&] {
    // The answer waits; a request that is not written is what the stop must not
    // wait for.
    while (disk_.refusals == 1'000'000) (void)create_token(std::chrono::milliseconds(200));
    ::eventfd_write(stop_.get(), 1);
  });
  const Result<void> ended = run_host();
  person.join();
  ASSERT_FALSE(ended);
  EXPECT_EQ(ended.error().code, ErrorCode::kExhausted);
}

// What waits for room before it is written with it: batches keep their order.
TEST_F(HostOnFaultyDisk, ADatasetIsDeletedFromAFullDisk) {
  Result<pb::AdminReply> deleted;
  std::thread person([&] {
    pb::AdminRequest request;
    *request.mutable_dataset_add() = testing::dataset("images", 1);
    EXPECT_TRUE(ask(request));
    disk_.refusals = 1'000'000;
    while (disk_.refusals == 1'000'000) (void)create_token(std::chrono::milliseconds(200));
    request.mutable_dataset_delete()->set_name("images");
    deleted = ask(request);
    disk_.refusals = 0;
    ::eventfd_write(stop_.get(), 1);
  });
  const Result<void> ended = run_host();
  person.join();
  EXPECT_TRUE(ended) << ended.error().message;
  EXPECT_TRUE(deleted) << deleted.error().message;
}

TEST_F(HostOnFaultyDisk, AFailedWriteEndsItAndIsAcknowledgedToNobody) {
  store_.fail_at(storage::StoreOperation::kWrite, 1);
  Result<pb::AdminReply> reply;
  std::thread person([&] { reply = create_token(std::chrono::seconds(5)); });
  const Result<void> ended = run_host();
  transport_.reset();
  person.join();
  ASSERT_FALSE(ended);
  EXPECT_EQ(ended.error().code, ErrorCode::kIo);
  EXPECT_FALSE(reply);
}

}  // namespace
}  // namespace skerry::coordinator
