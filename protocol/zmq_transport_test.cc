// SPDX-License-Identifier: Apache-2.0
// What only the real transport must bear: peers that do not use our client,
// ports, and descriptors used again.
#include "protocol/zmq_transport.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <thread>

#include "base/log.h"
#include "base/temp_folder.h"
#include "base/unique_fd.h"
#include "protocol/client.h"
#include "protocol/limits.h"
#include "protocol/testing/test_network.h"
#include "protocol/validate.h"
#include "protocol/zmq_socket.h"

namespace skerry::protocol {
namespace {

using ::testing::HasSubstr;

// A DEALER with the right keys and none of our client's manners.
struct RawPeer {
  std::shared_ptr<void> context = make_zmq_context().value();
  ZmqSocket dealer = ZmqSocket::open(context, ZMQ_DEALER).value();

  RawPeer(const Identity& identity, const std::string& server_key, const std::string& url) {
    dealer.set(ZMQ_CURVE_PUBLICKEY, identity.x25519_key());
    dealer.set(ZMQ_CURVE_SECRETKEY, identity.x25519_secret());
    dealer.set(ZMQ_CURVE_SERVERKEY, server_key);
    dealer.set(ZMQ_SNDHWM, 0);
    EXPECT_EQ(zmq_connect(dealer.get(), url.c_str()), 0);
  }
  void send(std::string_view bytes, bool more = false) {
    EXPECT_EQ(ZmqFrame(bytes).send(dealer, more), 0);
  }
};

// Connections without a handshake.
std::vector<UniqueFd> knock(const std::string& url, std::size_t count) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(std::stoi(url.substr(url.rfind(':') + 1))));
  ::inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
  std::vector<UniqueFd> made;
  for (std::size_t i = 0; i < count; ++i) {
    made.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::connect(made.back().get(), reinterpret_cast<sockaddr*>(&address), sizeof address),
              0);
  }
  return made;
}

struct ZmqServerTest : ::testing::Test {
  ZmqTestNetwork network;
  TestServer server{network.make_server()};
  const Identity ada = Identity::generate();
  RawPeer raw(Endpoint endpoint) {
    return RawPeer(ada, network.coordinator.x25519_key(),
                   server.transport->endpoints().of(endpoint));
  }
};

TEST_F(ZmqServerTest, AnOversizeFrameEndsItsConnection) {
  RawPeer peer = raw(Endpoint::kEnrol);
  peer.send("small");
  ASSERT_TRUE(until({&server}, {}, [&] { return server.incoming.size() == 1; }));
  peer.send(std::string(kEnrolMessageBytes + 1, 'x'));
  ASSERT_TRUE(until({&server}, {}, [&] { return server.closed.size() == 1; }));
  EXPECT_EQ(server.incoming.size(), 1u);
}

TEST_F(ZmqServerTest, AMessageOfManyFramesEndsItsConnection) {
  RawPeer peer = raw(Endpoint::kEnrol);
  peer.send("small");
  ASSERT_TRUE(until({&server}, {}, [&] { return server.incoming.size() == 1; }));
  peer.send("one", true);
  peer.send("two", true);
  peer.send("three");
  ASSERT_TRUE(until({&server}, {}, [&] { return server.closed.size() == 1; }));
  EXPECT_EQ(server.incoming.size(), 1u);
}

TEST_F(ZmqServerTest, AStrangerWhoSendsTooMuchIsCutOff) {
  RawPeer peer = raw(Endpoint::kEnrol);
  const std::string part(kEnrolMessageBytes, 'x');
  for (std::uint64_t sent = 0; sent <= 2 * kEnrolConnectionBytes; sent += part.size())
    peer.send(part);
  ASSERT_TRUE(until({&server}, {}, [&] { return server.closed.size() == 1; }));
}

// Frames within their limit, of one message that is not, from a peer known by
// an earlier message. ZeroMQ sends no part of a message before its end. So the
// whole message may have arrived before the server counted bytes; it is refused
// either way.
struct MessageOfManyFrames : ZmqServerTest, ::testing::WithParamInterface<Endpoint> {};

TEST_P(MessageOfManyFrames, EndsItsConnectionAndNamesItsSender) {
  server.transport->set_allowed({ada.x25519_key()});
  RawPeer peer = raw(GetParam());
  peer.send("small");
  ASSERT_TRUE(until({&server}, {}, [&] { return server.incoming.size() == 1; }));
  const std::uint64_t limit =
      GetParam() == Endpoint::kControl ? kControlUnreadBytes : kBlobUnreadBytes;
  const std::string part(limit_bytes(GetParam()), 'x');
  for (std::uint64_t sent = 0; sent <= 2 * limit; sent += part.size()) peer.send(part, true);
  peer.send("the end");
  ASSERT_TRUE(until({&server}, {}, [&] { return server.closed.size() == 1; }));
  ASSERT_FALSE(server.turned_away.empty());
  EXPECT_EQ(server.turned_away[0].public_key, ada.x25519_key());
  EXPECT_EQ(server.turned_away[0].address, "127.0.0.1");
  EXPECT_EQ(server.turned_away[0].endpoint, GetParam());
  EXPECT_EQ(server.incoming.size(), 1u);
}

INSTANTIATE_TEST_SUITE_P(All, MessageOfManyFrames,
                         ::testing::Values(Endpoint::kControl, Endpoint::kBlob),
                         [](const auto& each) { return std::string(to_string(each.param)); });

TEST_F(ZmqServerTest, LargeMessagesOneAfterAnotherEndNothing) {
  server.transport->set_allowed({ada.x25519_key()});
  RawPeer peer = raw(Endpoint::kBlob);
  const std::string chunk(kChunkBytes, 'c');
  constexpr std::size_t kChunks = 40;  // several times what may be unread
  for (std::size_t i = 0; i < kChunks; ++i) peer.send(chunk);
  ASSERT_TRUE(until({&server}, {},
                    [&] { return server.incoming.size() == kChunks || !server.closed.empty(); }));
  EXPECT_TRUE(server.closed.empty());
  EXPECT_TRUE(server.turned_away.empty());
}

TEST_F(ZmqServerTest, AKeyThatIsNotKnownIsToldWithItsAddress) {
  RawPeer peer = raw(Endpoint::kControl);
  ASSERT_TRUE(until({&server}, {}, [&] { return !server.turned_away.empty(); }));
  EXPECT_EQ(server.turned_away[0].public_key, ada.x25519_key());
  EXPECT_EQ(server.turned_away[0].address, "127.0.0.1");
}

// The first of each has its handshake behind it: no other limit would end it.
TEST_F(ZmqServerTest, StrangersMakeRoomForEachOther) {
  TestClient first(network.make_client(ada, network.coordinator.ed25519_key()));
  first.transport->dial(Endpoint::kEnrol);
  ASSERT_TRUE(until({&server}, {&first}, [&] { return first.opened == 1; }));
  ASSERT_TRUE(first.transport->send(Endpoint::kEnrol, "still a stranger"));
  const auto others = knock(server.transport->endpoints().enrol, kEnrolConnections);
  EXPECT_TRUE(until({&server}, {&first}, [&] { return first.lost == 1; }));
}

TEST_F(ZmqServerTest, DescriptorsUsedAgainNeverNameALivePeer) {
  // Peers come and go on the same few descriptors; one stays, and is never
  // called dead.
  const Identity stays = Identity::generate();
  server.transport->set_allowed({ada.x25519_key(), stays.x25519_key()});
  TestClient steady(network.make_client(stays, network.coordinator.ed25519_key()));
  steady.transport->dial(Endpoint::kControl);
  ASSERT_TRUE(until({&server}, {&steady}, [&] { return steady.opened == 1; }));
  ASSERT_TRUE(steady.transport->send(Endpoint::kControl, "here"));
  ASSERT_TRUE(until({&server}, {&steady}, [&] { return server.incoming.size() == 1; }));
  for (std::size_t round = 1; round <= 30; ++round) {
    TestClient brief(network.make_client(ada, network.coordinator.ed25519_key()));
    brief.transport->dial(Endpoint::kControl);
    ASSERT_TRUE(until({&server}, {&brief}, [&] { return brief.opened == 1; }));
    ASSERT_TRUE(brief.transport->send(Endpoint::kControl, "hello"));
    ASSERT_TRUE(until({&server}, {&brief}, [&] { return server.incoming.size() == round + 1; }));
    brief.transport.reset();
    ASSERT_TRUE(until({&server}, {}, [&] { return server.closed.size() == round; }));
    EXPECT_EQ(server.closed.back().connection, server.incoming.back().connection);
  }
  for (const Closed& closed : server.closed) EXPECT_EQ(closed.public_key, ada.x25519_key());
}

TEST_F(ZmqServerTest, AnswersLeaveBeforeTheServerEnds) {
  // Not our client: ZMQ_IMMEDIATE drops what arrived but was not read when the
  // connection ends.
  server.transport->allow(ada.x25519_key());
  RawPeer peer = raw(Endpoint::kBlob);
  peer.send("question");
  ASSERT_TRUE(until({&server}, {}, [&] { return server.incoming.size() == 1; }));
  const std::string chunk(kChunkBytes, 'c');
  constexpr int kChunks = 3;  // more than has left when the server is told to end
  for (int i = 0; i < kChunks; ++i)
    ASSERT_TRUE(server.transport->send(server.incoming[0].connection, chunk));
  server.transport.reset();
  for (int i = 0; i < kChunks; ++i) {
    ZmqFrame answer;
    ASSERT_TRUE(until({}, {}, [&] { return answer.receive(peer.dealer); })) << i;
    EXPECT_TRUE(answer.bytes() == chunk);
  }
}

TEST_F(ZmqServerTest, APortInUseIsNamed) {
  const std::string url = server.transport->endpoints().control;
  const std::string port = url.substr(url.rfind(':') + 1);
  const auto second = make_zmq_server(ada, {.listen = "127.0.0.1:0," + port + ",0"});
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ErrorCode::kConflict);
  EXPECT_THAT(second.error().message, HasSubstr("port " + port));
}

TEST(ZmqServer, BadAddressesAndLimitsAreErrors) {
  const Identity identity = Identity::generate();
  EXPECT_EQ(make_zmq_server(identity, {.listen = "nonsense:port"}).error().code,
            ErrorCode::kInvalid);
  EXPECT_EQ(make_zmq_server(identity, {.listen = "192.0.2.1:0"}).error().code, ErrorCode::kInvalid);
  EXPECT_EQ(make_zmq_server(identity, {.advertise = "h:0"}).error().code, ErrorCode::kInvalid);
  EXPECT_EQ(make_zmq_server(identity, {.connections = std::size_t{1} << 40}).error().code,
            ErrorCode::kExhausted);
}

TEST(ZmqServer, AdvertisesWhatItIsTold) {
  const Identity identity = Identity::generate();
  auto server = make_zmq_server(
      identity, {.listen = "127.0.0.1:0", .advertise = "rented.example:10022,10023,40000"});
  ASSERT_TRUE(server) << server.error().message;
  EXPECT_EQ((*server)->endpoints(),
            (Endpoints{"tcp://rented.example:10022", "tcp://rented.example:10023",
                       "tcp://rented.example:40000"}));
  server = make_zmq_server(identity, {.listen = "127.0.0.1:0", .advertise = "rented.example"});
  ASSERT_TRUE(server);
  EXPECT_THAT((*server)->endpoints().blob, HasSubstr("tcp://rented.example:"));
  EXPECT_NE((*server)->endpoints().blob, (*server)->endpoints().control);
}

TEST(ZmqRoundTrip, IsPrinted) {
  ZmqTestNetwork network;
  TestServer server(network.make_server());
  server.echo = true;
  const Identity ada = Identity::generate();
  server.transport->allow(ada.x25519_key());
  const auto start = std::chrono::steady_clock::now();
  TestClient client(network.make_client(ada, network.coordinator.ed25519_key()));
  client.transport->dial(Endpoint::kControl);
  ASSERT_TRUE(until({&server}, {&client}, [&] { return client.opened == 1; }));
  const auto opened = std::chrono::steady_clock::now();
  constexpr std::size_t kRounds = 200;
  for (std::size_t i = 1; i <= kRounds; ++i) {
    ASSERT_TRUE(client.transport->send(Endpoint::kControl, "question"));
    ASSERT_TRUE(until({&server}, {&client}, [&] { return client.received.size() == i; }));
  }
  const auto end = std::chrono::steady_clock::now();
  log_info("loopback", {{"dial and handshake", human_duration(opened - start)},
                        {"request and answer us", (end - opened).count() / kRounds / 1000}});
}

// As the CLI does it: a context file, one question, one answer, from nothing.
TEST(ZmqClientWalk, FromAContextFile) {
  const Identity coordinator = Identity::generate();
  const Identity ada = Identity::generate();
  auto server = make_zmq_server(coordinator, {});
  ASSERT_TRUE(server);
  (*server)->allow(ada.x25519_key());
  const TempFolder folder;
  const auto path = folder.path() / "ada.toml";
  Context context;
  context.name = "ada";
  context.role = pb::ROLE_ADMIN;
  context.endpoints = (*server)->endpoints();
  context.coordinator_key = coordinator.ed25519_key();
  context.seed = ada.seed();
  ASSERT_TRUE(write_context(path, context));

  std::atomic<bool> stop = false;
  std::jthread host([&] {
    while (!stop) {
      (void)(*server)->poll(std::chrono::milliseconds(20), {}, [&](ServerEvent event) {
        const auto* got = std::get_if<Incoming>(&event);
        if (got == nullptr) return;
        const auto request = parse_control_request(got->bytes);
        pb::ControlReply reply;
        reply.set_id(request->id());
        if (request->has_hello()) {
          *reply.mutable_hello()->mutable_version() = own_version();
          reply.mutable_hello()->set_heartbeat_ms(1000);
          reply.mutable_hello()->set_lease_ms(6000);
        } else {
          reply.mutable_admin()->mutable_nodes();
        }
        EXPECT_TRUE((*server)->send(got->connection, reply.SerializeAsString()));
      });
    }
  });
  const SystemClock clock;
  const auto start = std::chrono::steady_clock::now();
  auto client = Client::open(path, clock, "test");
  ASSERT_TRUE(client) << client.error().message;
  pb::AdminRequest request;
  request.mutable_node_list();
  const auto answer = client->call(request, std::chrono::seconds(60));
  const auto end = std::chrono::steady_clock::now();
  stop = true;
  ASSERT_TRUE(answer) << answer.error().message;
  EXPECT_TRUE(answer->has_nodes());
  log_info("loopback", {{"context to answer", human_duration(end - start)}});
}

struct OneConnection : ::testing::Test {
  const Identity coordinator = Identity::generate();
  const Identity ada = Identity::generate();
  TestServer server{std::move(*make_zmq_server(coordinator, {.connections = 1}))};
  TestClient first{
      std::move(*make_zmq_client(ada, {server.transport->endpoints(), coordinator.ed25519_key()}))};

  OneConnection() {
    server.transport->allow(ada.x25519_key());
    first.transport->dial(Endpoint::kControl);
    EXPECT_TRUE(until({&server}, {&first}, [&] { return first.opened == 1; }));
  }
};

TEST_F(OneConnection, SilentOnesMakeRoom) {
  const auto others = knock(server.transport->endpoints().control, 1);
  EXPECT_TRUE(until({&server}, {&first}, [&] { return first.lost == 1; }));
}

TEST_F(OneConnection, WhoHasSpokenStays) {
  ASSERT_TRUE(first.transport->send(Endpoint::kControl, "hello"));
  ASSERT_TRUE(until({&server}, {&first}, [&] { return server.incoming.size() == 1; }));
  const auto others = knock(server.transport->endpoints().control, 20);
  // The server has met them all once it has ended the nineteenth.
  char byte = 0;
  ASSERT_TRUE(until({&server}, {&first}, [&] {
    ssize_t got = 0;
    while ((got = ::recv(others[18].get(), &byte, 1, MSG_DONTWAIT)) > 0) {
    }
    return got == 0 || errno != EAGAIN;
  }));
  ASSERT_TRUE(first.transport->send(Endpoint::kControl, "still here"));
  ASSERT_TRUE(until({&server}, {&first}, [&] { return server.incoming.size() == 2; }));
  EXPECT_EQ(first.lost, 0);
}

// Clients of one shared context, as a node has them of its peers.
struct SharedContext : ZmqServerTest {
  std::shared_ptr<void> context;

  TestClient client() {
    Endpoints endpoints = server.transport->endpoints();
    auto made = make_zmq_client(ada, {endpoints, network.coordinator.ed25519_key(), context});
    EXPECT_TRUE(made) << made.error().message;
    return TestClient(std::move(*made));
  }
  std::vector<TestClient> dialling(std::size_t count) {
    std::vector<TestClient> clients;
    for (std::size_t i = 0; i < count; ++i) {
      clients.push_back(client());
      clients.back().transport->dial(Endpoint::kEnrol);
    }
    return clients;
  }
  bool all_open(std::vector<TestClient>& clients) {
    std::vector<TestClient*> each;
    for (TestClient& one : clients) each.push_back(&one);
    return until({&server}, each, [&] {
      return std::ranges::all_of(clients, [](auto& one) { return one.opened > 0; });
    });
  }
};

// ZeroMQ frees a closed socket, and the name of its monitor, later and on
// another thread.
TEST_F(SharedContext, ClientsOpenWhereOthersWereJustClosed) {
  constexpr std::size_t kClients = 16;
  constexpr int kRounds = 100;
  context = share_zmq_context(kClients * kRounds).value();
  for (int round = 0; round < kRounds; ++round) dialling(kClients);
  std::vector<TestClient> last = dialling(kClients);
  EXPECT_TRUE(all_open(last));
}

TEST_F(SharedContext, ClientsWaitForASocket) {
  context = share_zmq_context(1).value();
  std::vector<TestClient> first = dialling(1);
  ASSERT_TRUE(all_open(first));
  std::vector<TestClient> more = dialling(20);  // than the context has sockets for
  more.erase(more.begin(), more.end() - 1);
  EXPECT_TRUE(all_open(more));
}

// The process has as many descriptors as it has open, and no more.
struct NoMoreDescriptors {
  rlimit before{};
  NoMoreDescriptors() {
    ::getrlimit(RLIMIT_NOFILE, &before);
    const UniqueFd next(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    rlimit now = before;
    now.rlim_cur = static_cast<rlim_t>(next.get());
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &now), 0);
  }
  ~NoMoreDescriptors() { EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0); }
};

TEST_F(SharedContext, ClientsWaitForADescriptor) {
  context = share_zmq_context(8).value();
  std::vector<TestClient> first = dialling(1);
  ASSERT_TRUE(all_open(first));
  std::vector<TestClient> more;
  {
    const NoMoreDescriptors here;
    more = dialling(2);
    for (TestClient& each : more) each.poll();
    EXPECT_EQ(more[0].opened + more[1].opened, 0);
  }
  EXPECT_TRUE(all_open(more));
}

TEST_F(ZmqServerTest, WithoutADescriptorNoClientIsMade) {
  const NoMoreDescriptors here;
  const auto client =
      make_zmq_client(ada, {server.transport->endpoints(), network.coordinator.ed25519_key()});
  ASSERT_FALSE(client);
  EXPECT_THAT(client.error().message, HasSubstr("Too many open files"));
}

// What a node's record can say of its address, and ZeroMQ would not dial.
// What happens to a socket whose monitor has ended concerns no other socket of
// the context.
TEST(ZmqMonitor, AnEventAfterItsEndHoldsUpNoConnection) {
  const std::shared_ptr<void> context = make_zmq_context().value();
  ZmqSocket router = ZmqSocket::open(context, ZMQ_ROUTER).value();
  ASSERT_EQ(zmq_bind(router.get(), "tcp://127.0.0.1:*"), 0);
  std::array<char, 64> url{};
  std::size_t size = url.size();
  ASSERT_EQ(zmq_getsockopt(router.get(), ZMQ_LAST_ENDPOINT, url.data(), &size), 0);
  ZmqSocket watched = ZmqSocket::open(context, ZMQ_DEALER).value();
  ASSERT_TRUE(
      ZmqMonitor::open(context, watched, ZMQ_EVENT_CONNECTED | ZMQ_EVENT_HANDSHAKE_SUCCEEDED));
  ASSERT_EQ(zmq_connect(watched.get(), url.data()), 0);  // two events, and no reader
  ZmqSocket other = ZmqSocket::open(context, ZMQ_DEALER).value();
  ASSERT_EQ(zmq_connect(other.get(), url.data()), 0);
  ASSERT_EQ(ZmqFrame("hello").send(other), 0);
  zmq_pollitem_t item{router.get(), 0, ZMQ_POLLIN, 0};
  ASSERT_EQ(zmq_poll(&item, 1, 30'000), 1) << "the I/O thread waits for a reader";
}

TEST(ZmqClient, AddressesThatCannotBeDialledAreErrors) {
  const Identity ada = Identity::generate();
  for (const char* url :
       {"tcp://-:7600", "tcp://*:7600", "tcp://_a:7600", "tcp://a@b:7600", "tcp://\xc3\xa4:7600"}) {
    const auto made = make_zmq_peer_client(ada, url, ada.ed25519_key(), nullptr);
    if (made) (*made)->dial(Endpoint::kPeer);
    EXPECT_FALSE(made) << url;
  }
}

}  // namespace
}  // namespace skerry::protocol
