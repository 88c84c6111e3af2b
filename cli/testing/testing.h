// SPDX-License-Identifier: Apache-2.0
// Fake Surroundings and a fake coordinator for tests of commands. The fake
// records requests and replies with prepared answers. Chunks come from a map.
// Time advances only while a command waits.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "cli/shell/app.h"
#include "cli/shell/surroundings.h"
#include "protocol/identity.h"
#include "storage/manifest.h"

namespace skerry::cli {

// The fake coordinator's replies and records.
// LIFETIME: outlives the clients.
struct FakeCoordinator {
  using Answer = std::function<Result<pb::AdminReply>(const pb::AdminRequest&)>;
  std::map<pb::AdminRequest::BodyCase, Answer> answers;
  std::vector<pb::AdminRequest> asked;
  std::map<Hash, std::string> chunks;          // what can be fetched
  std::vector<std::pair<Hash, Hash>> fetched;  // (manifest, chunk) in order
  std::size_t fetches_before_loss = SIZE_MAX;  // after these the connection is lost
  std::function<void(exchange::ChunkStore&)>
      pull;  // fetches from the command's chunk_store while it serves
  Place place{.coordinator_key = protocol::Identity::generate().ed25519_key(),
              .endpoints = {"tcp://10.0.0.1:7600", "tcp://10.0.0.1:7601", "tcp://10.0.0.1:7602"},
              .origin = "test"};

  void answer(pb::AdminRequest::BodyCase what, pb::AdminReply reply) {
    answers[what] = [reply = std::move(reply)](const pb::AdminRequest&) {
      return Result<pb::AdminReply>(reply);
    };
  }
  void refuse(pb::AdminRequest::BodyCase what, ErrorCode code, const std::string& message) {
    answers[what] = [code, message](const pb::AdminRequest&) -> Result<pb::AdminReply> {
      return fail(code, message);
    };
  }
};

class FakeClient final : public AdminClient {
 public:
  explicit FakeClient(FakeCoordinator& coordinator) : coordinator_(coordinator) {}
  Result<pb::AdminReply> ask(const pb::AdminRequest& request) override {
    coordinator_.asked.push_back(request);
    const auto found = coordinator_.answers.find(request.body_case());
    if (found == coordinator_.answers.end()) {
      pb::AdminReply acknowledged;
      acknowledged.mutable_ack();
      return acknowledged;
    }
    return found->second(request);
  }
  const Place& place() const override { return coordinator_.place; }
  Result<void> fetch(const std::vector<WantedObject>& wanted, exchange::ChunkStore& chunk_store,
                     const Shown& shown) override {
    for (const WantedObject& object : wanted) TRY(fetch_one(object, chunk_store));
    shown(1, 1);
    return {};
  }
  Result<void> serve(exchange::ChunkStore& chunk_store,
                     const std::function<Result<bool>()>& finished) override {
    while (true) {
      ASSIGN_OR_RETURN(const bool done, finished());
      if (done) return {};
      if (coordinator_.pull) coordinator_.pull(chunk_store);
    }
  }

 private:
  Result<std::string> chunk(const Hash& manifest, const Hash& hash) {
    const auto found = coordinator_.chunks.find(hash);
    if (found == coordinator_.chunks.end() ||
        coordinator_.fetched.size() >= coordinator_.fetches_before_loss) {
      return fail(ErrorCode::kUnavailable, "no peer that has it is connected");
    }
    coordinator_.fetched.emplace_back(manifest, hash);
    return found->second;
  }
  Result<void> fetch_one(const WantedObject& object, exchange::ChunkStore& chunk_store) {
    ASSIGN_OR_RETURN(std::string encoded, chunk(object.object, object.object));
    ASSIGN_OR_RETURN(const storage::NamedManifest manifest,
                     storage::decode_manifest(std::move(encoded)));
    ASSIGN_OR_RETURN(const std::vector<Hash> present, chunk_store.open(manifest, object.parts));
    for (const storage::Chunk& wanted : storage::distinct_chunks(manifest.manifest, object.parts)) {
      if (std::find(present.begin(), present.end(), wanted.hash) != present.end()) continue;
      ASSIGN_OR_RETURN(const std::string bytes, chunk(object.object, wanted.hash));
      TRY(chunk_store.write(object.object, wanted.hash, bytes));
    }
    return chunk_store.seal(object.object);
  }

  FakeCoordinator& coordinator_;
};

class FakeSurroundings final : public Surroundings {
 public:
  std::ostream& out() override { return out_; }
  Result<void> flush_out() override {
    return out_ ? Result<void>() : fail(ErrorCode::kIo, "the output could not be written");
  }
  std::ostream& err() override { return err_; }
  std::istream& in() override { return in_; }
  bool out_is_terminal() const override { return terminal; }
  bool err_is_terminal() const override { return terminal; }
  bool in_is_terminal() const override { return terminal; }
  int columns() const override { return 80; }
  std::optional<std::string> environment(const std::string& name) const override {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  }
  std::int64_t unix_ms() const override { return now_unix_ms; }
  std::chrono::nanoseconds uptime() const override { return up_; }
  void wait(std::chrono::milliseconds duration) override {
    up_ += duration;
    ++waits;
    if (on_wait) on_wait();
  }
  Result<std::unique_ptr<AdminClient>> connect(const std::string& flag) override {
    contexts.push_back(flag);
    if (unreachable) return fail(ErrorCode::kUnavailable, "nobody there");
    return std::unique_ptr<AdminClient>(std::make_unique<FakeClient>(coordinator));
  }
  Result<std::unique_ptr<Fleet>> connect_fleet(const std::string&,
                                               const std::string& from) override {
    fleets.push_back(from);
    if (!make_fleet) return fail(ErrorCode::kUnavailable, "nobody there");
    return make_fleet();
  }
  Result<LoggedIn> login(const std::string& token, const std::string& name,
                         const std::string& path) override {
    logins.push_back({token, name, path});
    return LoggedIn{path, "viewer", name.empty() ? "someone" : name};
  }
  Result<std::chrono::nanoseconds> reach(const std::string& url) override {
    if (closed_ports.contains(url))
      return fail(ErrorCode::kUnavailable, "no connection: Connection refused");
    return std::chrono::milliseconds(3);
  }
  Result<std::string> find_program(const std::string& name) const override {
    if (!programs.contains(name)) return fail(ErrorCode::kNotFound, name + " is not there");
    return "/bin/" + name;
  }
  using Surroundings::run_program;
  Result<int> run_program(const std::vector<std::string>& words, const OnLine& on_line,
                          const RunOptions& options) override {
    run_environment = options.environment;
    ran.push_back(words);
    return run ? run(words, on_line) : 0;
  }
  Result<int> become_program(const std::vector<std::string>& words) override {
    ran.push_back(words);
    return 0;
  }
  Result<std::vector<Card>> cards() override { return found_cards; }
  std::string driver() const override { return driver_version; }
  void set_parting_words(const std::string& words) override { parting_words = words; }

  // Runs a command; its streams start empty.
  int operator()(const std::vector<std::string>& words) {
    out_.str("");
    err_.str("");
    return run_cli(words, *this);
  }
  std::string printed() const { return out_.str(); }
  std::string told() const { return err_.str(); }
  void type(const std::string& words) {
    in_.clear();
    in_.str(words);
  }

  FakeCoordinator coordinator;
  bool terminal = false;
  bool unreachable = false;
  std::set<std::string> closed_ports;  // tcp://HOST:PORT
  std::map<std::string, std::string> variables;
  std::map<std::string, bool> programs;
  std::int64_t now_unix_ms = 1'750'000'000'000;
  int waits = 0;
  std::function<void()> on_wait;
  std::vector<std::string> contexts;
  std::vector<std::string> fleets;  // the nodes that were named
  std::function<std::unique_ptr<Fleet>()> make_fleet;
  std::vector<std::vector<std::string>> logins;
  std::vector<std::vector<std::string>> ran;
  std::vector<std::string> run_environment;  // of the last of them
  Result<std::vector<Card>> found_cards;
  std::string driver_version = "580.95.05";
  std::function<int(const std::vector<std::string>&,
                    const std::function<void(const std::string&)>&)>
      run;
  std::string parting_words;

 private:
  std::ostringstream out_, err_;
  std::istringstream in_;
  std::chrono::nanoseconds up_{};
};

}  // namespace skerry::cli
