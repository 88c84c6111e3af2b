// SPDX-License-Identifier: Apache-2.0
// The blocking walks of a client, against a small coordinator that runs in the
// fake network's background.
#include "protocol/client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>

#include "base/unique_fd.h"
#include "protocol/enrol.h"
#include "protocol/testing/fake_transport.h"
#include "protocol/validate.h"

namespace skerry::protocol {
namespace {

using ::testing::HasSubstr;

class VirtualClock final : public Clock {
 public:
  explicit VirtualClock(const FakeNetwork& network) : network_(network) {}
  Now now() const override { return {network_.now(), 1'000}; }

 private:
  const FakeNetwork& network_;
};

// Answers each request by what the test has set.
struct Coordinator {
  FakeNetwork network{7};
  VirtualClock clock{network};
  Identity identity = Identity::generate();
  std::unique_ptr<ServerTransport> transport = network.make_server(identity);
  std::vector<pb::ControlRequest> requests;
  int lost_hellos = 0;  // so many it does not read
  bool hold_greetings = false;
  std::optional<Incoming> held;  // the Hello that waits for its answer
  std::vector<pb::EnrolRequest> enrolments;
  std::function<void(const Incoming&, const pb::ControlRequest&)> answer;
  std::function<void(const Incoming&, const pb::EnrolRequest&)> answer_enrol;

  Coordinator() {
    network.set_background([this] {
      if (!transport) return;
      auto polled = transport->poll(Duration::zero(), {}, [this](ServerEvent event) { on(event); });
      EXPECT_TRUE(polled);
    });
  }
  void on(const ServerEvent& event) {
    const auto* got = std::get_if<Incoming>(&event);
    if (got == nullptr) return;
    if (got->connection.endpoint == Endpoint::kEnrol) {
      auto request = parse_enrol_request(got->bytes);
      ASSERT_TRUE(request) << request.error().message;
      enrolments.push_back(*request);
      answer_enrol(*got, *request);
      return;
    }
    auto request = parse_control_request(got->bytes);
    ASSERT_TRUE(request) << request.error().message;
    if (request->has_hello() && lost_hellos-- > 0) return;
    requests.push_back(*request);
    if (!request->has_hello()) return answer(*got, *request);
    if (hold_greetings) {
      held = *got;
    } else {
      greet(*got, request->id());
    }
  }
  void greet(const Incoming& to, std::uint64_t id) {
    pb::ControlReply reply;
    reply.set_id(id);
    *reply.mutable_hello()->mutable_version() = own_version();
    reply.mutable_hello()->set_heartbeat_ms(1000);
    reply.mutable_hello()->set_lease_ms(6000);
    send(to, reply);
  }
  void send(const Incoming& to, const pb::ControlReply& reply) {
    EXPECT_TRUE(transport->send(to.connection, reply.SerializeAsString()));
  }
  void acknowledge(const Incoming& to, const pb::ControlRequest& request) {
    pb::ControlReply reply;
    reply.set_id(request.id());
    reply.mutable_admin()->mutable_ack();
    send(to, reply);
  }
};

struct ClientWalk : ::testing::Test {
  Coordinator coordinator;
  const Identity ada = Identity::generate();
  Client client{coordinator.network.make_client(ada, coordinator.identity.ed25519_key()),
                coordinator.clock, "test"};

  ClientWalk() {
    coordinator.transport->allow(ada.x25519_key());
    coordinator.answer = [this](const Incoming& to, const pb::ControlRequest& request) {
      coordinator.acknowledge(to, request);
    };
  }
  static pb::AdminRequest list() {
    pb::AdminRequest request;
    request.mutable_node_list();
    return request;
  }
  static pb::AdminRequest create_token() {
    pb::AdminRequest request;
    request.mutable_token_create()->set_role(pb::ROLE_NODE);
    request.mutable_token_create()->set_uses(1);
    request.mutable_token_create()->set_ttl_seconds(60);
    return request;
  }
};

// A busy coordinator drops what it does not read, and refuses what comes before
// Hello.
TEST_F(ClientWalk, AHelloThatIsLostIsSaidAgainWithItsRequest) {
  coordinator.lost_hellos = 1;
  coordinator.answer = [&](const Incoming& got, const pb::ControlRequest& request) {
    const bool is_greeted = std::ranges::any_of(
        coordinator.requests, [](const pb::ControlRequest& each) { return each.has_hello(); });
    if (is_greeted) return coordinator.acknowledge(got, request);
    pb::ControlReply reply;
    reply.set_id(request.id());
    reply.mutable_error()->set_code("conflict");
    reply.mutable_error()->set_message("Hello must come first on a connection");
    coordinator.send(got, reply);
  };
  const auto reply =
      client.call(create_token(), std::chrono::seconds(30));  // else it is never said twice
  ASSERT_TRUE(reply) << reply.error().message;
  EXPECT_TRUE(reply->has_ack());
}

// A coordinator whose disk fills up refuses at once what its answer to Hello,
// which waits for the disk, comes after.
TEST_F(ClientWalk, ARefusalThatOvertakesTheAnswerToHelloIsAskedForAgain) {
  coordinator.hold_greetings = true;
  int refusals = 0;
  coordinator.answer = [&](const Incoming& to, const pb::ControlRequest& request) {
    if (refusals++ > 0) return coordinator.acknowledge(to, request);
    pb::ControlReply reply;
    reply.set_id(request.id());
    reply.mutable_error()->set_code("exhausted");
    coordinator.send(to, reply);
    coordinator.greet(*coordinator.held, 0);
  };
  const auto reply = client.call(create_token(), std::chrono::seconds(20));
  EXPECT_TRUE(reply) << reply.error().message;
  EXPECT_EQ(refusals, 2);
}

TEST_F(ClientWalk, HelloOnceThenRequests) {
  ASSERT_TRUE(client.call(list()));
  const auto second = client.call(list());
  ASSERT_TRUE(second);
  EXPECT_TRUE(second->has_ack());
  ASSERT_EQ(coordinator.requests.size(), 3u);
  EXPECT_TRUE(coordinator.requests[0].has_hello());
  EXPECT_TRUE(coordinator.requests[1].has_admin());
  EXPECT_EQ(client.hello().lease_ms(), 6000u);
  // Nothing waits needlessly: dial, hello and question together, answer; then
  // question, answer; 1 ms each way.
  EXPECT_LE(coordinator.clock.now().boot, std::chrono::milliseconds(6));
}

TEST_F(ClientWalk, ErrorsComeWithTheirCode) {
  coordinator.answer = [&](const Incoming& to, const pb::ControlRequest& request) {
    pb::ControlReply reply;
    reply.set_id(request.id());
    *reply.mutable_error() = to_message(fail(ErrorCode::kNotFound, "no such node"));
    coordinator.send(to, reply);
  };
  const auto answer = client.call(list());
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, ErrorCode::kNotFound);
  EXPECT_EQ(answer.error().message, "no such node");
}

TEST_F(ClientWalk, ALostConnectionIsBridged) {
  bool dropped = false;
  coordinator.answer = [&](const Incoming& to, const pb::ControlRequest& request) {
    if (!std::exchange(dropped, true)) return coordinator.transport->close(to.connection);
    coordinator.acknowledge(to, request);
  };
  ASSERT_TRUE(client.call(list()));
  EXPECT_EQ(coordinator.requests.size(), 4u);  // hello and question, twice
}

TEST_F(ClientWalk, ALostAnswerIsAskedForAgain) {
  bool dropped = false;
  coordinator.answer = [&](const Incoming& to, const pb::ControlRequest& request) {
    if (std::exchange(dropped, true)) coordinator.acknowledge(to, request);
  };
  ASSERT_TRUE(client.call(list()));
  EXPECT_EQ(coordinator.requests[1].id(), coordinator.requests[2].id());
}

TEST_F(ClientWalk, WhatMustNotHappenTwiceIsNotRepeated) {
  coordinator.answer = [&](const Incoming& to, const pb::ControlRequest&) {
    coordinator.transport->close(to.connection);
  };
  const auto answer = client.call(create_token());
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(coordinator.requests.size(), 2u);
}

TEST_F(ClientWalk, TimesOutAndSaysWhy) {
  coordinator.transport.reset();
  const auto answer = client.call(list(), std::chrono::seconds(5));
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, ErrorCode::kTimeout);
  EXPECT_THAT(answer.error().message, HasSubstr("is it running?"));
}

TEST_F(ClientWalk, ARevokedKeyIsToldSo) {
  coordinator.transport->set_allowed({});
  const auto answer = client.call(list(), std::chrono::seconds(60));
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, ErrorCode::kUnauthorised);
  EXPECT_THAT(answer.error().message, HasSubstr("revoked"));
}

struct EnrolWalk : ::testing::Test {
  Coordinator coordinator;
  const Identity node = Identity::generate();
  JoinToken token{{"tcp://fake:1", "tcp://fake:2", "tcp://fake:3"},
                  coordinator.identity.ed25519_key(),
                  new_token_id(),
                  new_token_secret(),
                  pb::ROLE_NODE,
                  1'000'000};

  EnrolWalk() {
    coordinator.answer_enrol = [this](const Incoming& to, const pb::EnrolRequest& request) {
      grant(to, request);
    };
  }
  void grant(const Incoming& to, const pb::EnrolRequest& request) {
    ASSERT_TRUE(check_enrol_request(request, coordinator.identity.x25519_key(), to.public_key));
    pb::CertificateBody body;
    body.set_ed25519_key(request.ed25519_key());
    body.set_name(request.name());
    body.set_role(pb::ROLE_NODE);
    body.set_expires_unix_ms(2'000'000);
    pb::EnrolReply reply;
    reply.set_id(request.id());
    *reply.mutable_certificate() = issue_certificate(coordinator.identity, body);
    EXPECT_TRUE(coordinator.transport->send(to.connection, reply.SerializeAsString()));
  }
  Result<Enrolled> enrol_now(Duration timeout = std::chrono::seconds(30), int stop = -1) {
    const auto transport = coordinator.network.make_client(node, token.coordinator_key);
    return enrol(*transport, coordinator.clock, token, node, "rented-1", timeout, stop);
  }
};

TEST_F(EnrolWalk, GivesACertificate) {
  const auto enrolled = enrol_now();
  ASSERT_TRUE(enrolled) << enrolled.error().message;
  EXPECT_EQ(enrolled->body.name(), "rented-1");
  EXPECT_EQ(enrolled->body.node_id(), node.node_id().str());
}

TEST_F(EnrolWalk, ALostAnswerIsAskedForAgainInTheSameWords) {
  int asked = 0;
  coordinator.answer_enrol = [&](const Incoming& to, const pb::EnrolRequest& request) {
    if (++asked == 1) return coordinator.transport->close(to.connection);
    if (asked == 3) grant(to, request);
  };
  ASSERT_TRUE(enrol_now());
  ASSERT_EQ(coordinator.enrolments.size(), 3u);
  EXPECT_EQ(coordinator.enrolments[0].SerializeAsString(),
            coordinator.enrolments[2].SerializeAsString());
}

TEST_F(EnrolWalk, ARefusalComesWithItsReason) {
  coordinator.answer_enrol = [&](const Incoming& to, const pb::EnrolRequest& request) {
    pb::EnrolReply reply;
    reply.set_id(request.id());
    *reply.mutable_error() = to_message(fail(ErrorCode::kUnauthorised, "the token is spent"));
    EXPECT_TRUE(coordinator.transport->send(to.connection, reply.SerializeAsString()));
  };
  EXPECT_EQ(enrol_now().error().message, "the token is spent");
}

TEST_F(EnrolWalk, AnotherCoordinatorIsNoticed) {
  token.coordinator_key = Identity::generate().ed25519_key();
  const auto enrolled = enrol_now();
  ASSERT_FALSE(enrolled);
  EXPECT_EQ(enrolled.error().code, ErrorCode::kUnauthorised);
  EXPECT_THAT(enrolled.error().message, HasSubstr("another coordinator"));
}

TEST_F(EnrolWalk, EndsAtOnceWhenToldToStop) {
  coordinator.transport.reset();
  const UniqueFd stop(::eventfd(1, EFD_CLOEXEC));
  const Duration before = coordinator.clock.now().boot;
  const auto enrolled = enrol_now(std::chrono::seconds(20), stop.get());
  ASSERT_FALSE(enrolled);
  EXPECT_EQ(enrolled.error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(coordinator.clock.now().boot, before);
}

// A forwarded port accepts for a coordinator that restarts, and hangs up: a
// foreign key looks the same.
TEST_F(EnrolWalk, ACoordinatorThatRestartsBehindAForwardedPortIsWaitedFor) {
  const Identity other = Identity::generate();
  coordinator.transport.reset();
  coordinator.transport = coordinator.network.make_server(other);
  const Duration back_at = coordinator.network.now() + std::chrono::seconds(5);
  coordinator.network.set_background([this, back_at, back = false]() mutable {
    if (!back && coordinator.network.now() >= back_at) {
      back = true;
      coordinator.transport.reset();
      coordinator.transport = coordinator.network.make_server(coordinator.identity);
    }
    EXPECT_TRUE(coordinator.transport->poll(Duration::zero(), {},
                                            [this](ServerEvent event) { coordinator.on(event); }));
  });
  const auto enrolled = enrol_now();
  ASSERT_TRUE(enrolled) << enrolled.error().message;
}

TEST_F(EnrolWalk, NobodyThereIsATimeout) {
  coordinator.transport.reset();
  const auto enrolled = enrol_now(std::chrono::seconds(20));
  ASSERT_FALSE(enrolled);
  EXPECT_EQ(enrolled.error().code, ErrorCode::kTimeout);
  EXPECT_GE(coordinator.clock.now().boot, std::chrono::seconds(20));
}

}  // namespace
}  // namespace skerry::protocol
