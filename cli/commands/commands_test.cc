// SPDX-License-Identifier: Apache-2.0
// Each command: what it asks of the coordinator, what it prints, how it exits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/temp_folder.h"
#include "cli/run/run_file.h"
#include "cli/shell/exit_code.h"
#include "cli/shell/output.h"
#include "cli/shell/version.h"
#include "cli/testing/testing.h"
#include "protocol/context.h"
#include "protocol/token.h"
#include "storage/folder_lock.h"

namespace skerry::cli {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::IsSupersetOf;
using testing::Not;
using Body = pb::AdminRequest;

Json json(const FakeSurroundings& around) {
  const Json parsed = Json::parse(around.printed());
  EXPECT_EQ(parsed.begin().key(), "api_version");
  EXPECT_EQ(parsed["api_version"], "skerry/v1");
  return parsed;
}

pb::AdminReply run_reply(const std::string& state) {
  pb::AdminReply reply;
  pb::RunInfo& run = *reply.mutable_runs()->add_runs();
  run.set_id("r-0123456789");
  run.set_name("fashion");
  run.set_state(state);
  run.set_samples_per_second(120.5);
  run.set_eta_seconds(-1);
  run.mutable_spec()->set_dataset("shapes");
  pb::ExpertInfo& trained = *run.add_experts();
  trained.set_step(100);
  trained.set_steps_target(200);
  trained.set_epoch(7);
  trained.set_node("anna");
  trained.set_loss(0.25);
  trained.set_checkpoint(std::string(32, '\x1f'));
  trained.set_committed_unix_ms(1'750'000'000'000);
  trained.set_phase("training");
  trained.set_copies(2);
  trained.set_unanchored_steps(50);
  pb::ExpertInfo& waiting = *run.add_experts();
  waiting.set_index(1);
  waiting.set_steps_target(200);
  waiting.set_phase("waiting");
  return reply;
}

// Commands that name one thing and are acknowledged.
struct NamedCase {
  std::vector<std::string> words;
  Body::BodyCase body;
};
class NamedCommand : public testing::TestWithParam<NamedCase> {};

TEST_P(NamedCommand, AsksForTheNameAndSucceeds) {
  FakeSurroundings around;
  std::vector<std::string> words = GetParam().words;
  words.push_back("it");
  EXPECT_EQ(around(words), kExitOk) << around.told();
  ASSERT_EQ(around.coordinator.asked.size(), 1U);
  const pb::AdminRequest& asked = around.coordinator.asked[0];
  EXPECT_EQ(asked.body_case(), GetParam().body);
  EXPECT_THAT(asked.ShortDebugString(), HasSubstr("name: \"it\""));
  EXPECT_THAT(around.printed(), IsEmpty());
}

TEST_P(NamedCommand, WithoutANameIsUsage) {
  FakeSurroundings around;
  EXPECT_EQ(around(GetParam().words), kExitUsage);
  EXPECT_THAT(around.told(),
              HasSubstr("skerry " + GetParam().words[0] + " " + GetParam().words[1] + " --help"));
  EXPECT_THAT(around.coordinator.asked, IsEmpty());
}

TEST_P(NamedCommand, SaysInJsonWhatItDid) {
  FakeSurroundings around;
  std::vector<std::string> words = GetParam().words;
  words.insert(words.end(), {"it", "-o", "json", "--yes"});
  EXPECT_EQ(around(words), kExitOk);
  const Json said = json(around);
  EXPECT_EQ(said[words[0]], "it");
  EXPECT_FALSE(said["done"].get<std::string>().empty());
}

TEST_P(NamedCommand, TheCoordinatorsRefusalBecomesTheExitStatus) {
  FakeSurroundings around;
  std::vector<std::string> words = GetParam().words;
  words.push_back("it");
  for (const auto& [code, status] : {std::pair{ErrorCode::kNotFound, 3},
                                     {ErrorCode::kUnauthorised, 5},
                                     {ErrorCode::kConflict, 6},
                                     {ErrorCode::kTimeout, 7}}) {
    around.coordinator.refuse(GetParam().body, code, "because of it");
    EXPECT_EQ(around(words), status);
    EXPECT_THAT(around.told(), HasSubstr("skerry: because of it"));
  }
}

INSTANTIATE_TEST_SUITE_P(All, NamedCommand,
                         testing::Values(NamedCase{{"token", "revoke"}, Body::kTokenRevoke},
                                         NamedCase{{"node", "cordon"}, Body::kNodeCordon},
                                         NamedCase{{"node", "uncordon"}, Body::kNodeUncordon},
                                         NamedCase{{"node", "evict"}, Body::kNodeEvict},
                                         NamedCase{{"node", "revoke"}, Body::kNodeRevoke},
                                         NamedCase{{"dataset", "delete"}, Body::kDatasetDelete},
                                         NamedCase{{"run", "pause"}, Body::kRunPause},
                                         NamedCase{{"run", "resume"}, Body::kRunResume},
                                         NamedCase{{"run", "stop"}, Body::kRunStop},
                                         NamedCase{{"run", "delete"}, Body::kRunDelete}));

// Captions of two tokens' width; three of them say left or right.
pb::AdminReply captioned_dataset() {
  pb::AdminReply reply;
  pb::DatasetInfo& dataset = *reply.mutable_datasets()->add_datasets();
  dataset.set_name("birds");
  dataset.set_state("ready");
  dataset.set_caption_dim(768);
  dataset.set_caption_tokens(41);
  dataset.set_text_encoder("t5:0123456789ab");
  dataset.set_sided_captions(3);
  return reply;
}

TEST(Dataset, ShowsWhatItsCaptionsAre) {
  FakeSurroundings around;
  around.coordinator.answer(Body::kDatasetShow, captioned_dataset());
  ASSERT_EQ(around({"dataset", "show", "birds"}), kExitOk) << around.told();
  EXPECT_THAT(around.printed(),
              HasSubstr("captions of at most 41 tokens with 768 numbers each, by t5:0123456789ab"));
  ASSERT_EQ(around({"dataset", "show", "birds", "-o", "json"}), kExitOk) << around.told();
  EXPECT_EQ(json(around)["text"],
            (Json{{"dim", 768}, {"encoder", "t5:0123456789ab"}, {"longest", 41}}));
  pb::AdminReply silent = captioned_dataset();
  silent.mutable_datasets()->mutable_datasets(0)->set_caption_dim(0);
  around.coordinator.answer(Body::kDatasetShow, silent);
  ASSERT_EQ(around({"dataset", "show", "birds", "-o", "json"}), kExitOk) << around.told();
  EXPECT_TRUE(json(around)["text"].is_null());
}

TEST(Dataset, WhoseCaptionsSaySidesIsNotMirroredSilently) {
  FakeSurroundings around;
  const TempFolder folder;
  around.coordinator.answer(Body::kDatasetShow, captioned_dataset());
  around.coordinator.answer(Body::kRunCreate, run_reply("waiting"));
  const auto create = [&](const std::string& flip, const std::string& architecture) {
    std::ofstream(folder / "run.toml")
        << "name = \"robin\"\ndataset = \"birds\"\n[train]\nsteps = 10\nflip = " << flip
        << "\n[model]\narchitecture = \"" << architecture << "\"\n";
    EXPECT_EQ(around({"run", "create", "-f", folder / "run.toml"}), kExitOk) << around.told();
    return around.told();
  };
  EXPECT_THAT(create("true", "auto"),
              HasSubstr("warning: 3 captions of birds say left or right, and train.flip mirrors"));
  EXPECT_THAT(create("false", "auto"), Not(HasSubstr("warning")));
  EXPECT_THAT(create("true", "dit"), Not(HasSubstr("warning")));
}

TEST(Parsing, UsageErrorsHelpAndSuggestions) {
  FakeSurroundings around;
  EXPECT_EQ(around({}), kExitUsage);
  EXPECT_THAT(around.told(), HasSubstr("A first run:"));
  EXPECT_EQ(around({"node"}), kExitUsage);
  EXPECT_THAT(around.told(), AllOf(HasSubstr("Usage: skerry node"), HasSubstr("uncordon")));
  EXPECT_EQ(around({"-o", "json", "nod", "list"}), kExitUsage);
  EXPECT_THAT(around.told(),
              HasSubstr("there is no command 'skerry nod': did you mean 'skerry node'?"));
  EXPECT_EQ(around({"node", "list", "--contxt", "x"}), kExitUsage);
  EXPECT_THAT(around.told(), HasSubstr("has no option --contxt: did you mean --context?"));
  EXPECT_EQ(around({"run", "expert", "list", "fashion"}), kExitUsage);
  EXPECT_THAT(around.told(), HasSubstr("there is no command 'skerry run expert list'"));
  EXPECT_EQ(around({"run", "expert"}), kExitUsage);
  EXPECT_THAT(around.told(), HasSubstr("Usage: skerry run expert"));
  EXPECT_EQ(around({"node", "lst"}), kExitUsage);
  EXPECT_THAT(around.told(), HasSubstr("did you mean 'skerry node list'?"));
  EXPECT_EQ(around({"node", "list", "-o", "yaml"}), kExitUsage);
  EXPECT_EQ(around({"node", "list", "--what"}), kExitUsage);
  EXPECT_EQ(around({"run", "extend", "fashion"}), kExitUsage);
  EXPECT_EQ(around({"run", "extend", "fashion", "--steps", "0"}), kExitUsage);
  EXPECT_EQ(around({"token", "create", "--role", "king"}), kExitUsage);
  EXPECT_EQ(around({"token", "create", "--uses", "0"}), kExitUsage);
  EXPECT_EQ(around({"token", "create", "--ttl", "soon"}), kExitUsage);
  EXPECT_EQ(around({"dataset", "add", "x", "y", "--partitions", "0"}), kExitUsage);
  EXPECT_EQ(around({"ensemble", "fetch", "fashion"}), kExitUsage);
  EXPECT_THAT(around.coordinator.asked, IsEmpty());
  EXPECT_THAT(around.printed(), IsEmpty());
}

TEST(Parsing, EveryCommandsHelpTeachesWithAnExample) {
  FakeSurroundings around;
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
           {"token", "create"}, {"token", "list"},   {"token", "revoke"},   {"login"},
           {"node", "list"},    {"node", "show"},    {"node", "cordon"},    {"node", "uncordon"},
           {"node", "drain"},   {"node", "evict"},   {"node", "revoke"},    {"node", "logs"},
           {"dataset", "add"},  {"dataset", "list"}, {"dataset", "show"},   {"dataset", "delete"},
           {"run", "create"},   {"run", "list"},     {"run", "show"},       {"run", "watch"},
           {"run", "pause"},    {"run", "resume"},   {"run", "stop"},       {"run", "extend"},
           {"run", "delete"},   {"run", "why"},      {"shard", "list"},     {"event", "list"},
           {"chunk", "list"},   {"chunk", "verify"}, {"ensemble", "fetch"}, {"sample"},
           {"doctor"},          {"version"},         {"completion"},        {"run", "preview"}}) {
    std::vector<std::string> asked = words;
    asked.push_back("--help");
    EXPECT_EQ(around(asked), kExitOk) << words[0];
    EXPECT_THAT(around.printed(), AllOf(HasSubstr("Example:"), HasSubstr("skerry " + words[0])));
  }
}

TEST(Parsing, TheContextMayStandBeforeOrAfterTheCommand) {
  FakeSurroundings around;
  around({"--context", "a.toml", "run", "why", "x"});
  around({"run", "why", "x", "--context", "b.toml"});
  EXPECT_THAT(around.contexts, ElementsAre("a.toml", "b.toml"));
}

TEST(Parsing, AnUnreachableCoordinatorIsFour) {
  FakeSurroundings around;
  around.unreachable = true;
  EXPECT_EQ(around({"node", "list"}), kExitUnreachable);
}

TEST(Output, WarnsOnceIfTheCoordinatorsDiskIsFull) {
  FakeSurroundings around;
  pb::AdminReply reply = run_reply("training");
  reply.set_lacks_room(true);
  around.coordinator.answer(Body::kRunList, reply);
  EXPECT_EQ(around({"run", "list"}), kExitOk);
  EXPECT_THAT(around.printed(), HasSubstr("fashion"));
  EXPECT_THAT(around.told(), HasSubstr("warning: the coordinator's disk is full"));
}

TEST(Confirmation, ATerminalIsAskedUnlessYesWasGiven) {
  FakeSurroundings around;
  around.terminal = true;
  around.type("n\n");
  EXPECT_EQ(around({"run", "delete", "fashion"}), kExitConflict);
  EXPECT_THAT(around.told(), HasSubstr("Delete fashion with all its checkpoints?"));
  EXPECT_THAT(around.coordinator.asked, IsEmpty());
  around.type("");  // end of input
  EXPECT_EQ(around({"node", "evict", "anna"}), kExitConflict);
  around.type("y\n");
  EXPECT_EQ(around({"run", "stop", "fashion"}), kExitOk);
  EXPECT_EQ(around({"node", "revoke", "anna", "--yes"}), kExitOk);
  EXPECT_EQ(around.coordinator.asked.size(), 2U);
}

TEST(Token, CreateMakesAStringThatADaemonCanParse) {
  FakeSurroundings around;
  pb::AdminReply reply;
  reply.mutable_token_created()->mutable_info()->set_id("3f9a0c12be77");
  reply.mutable_token_created()->mutable_info()->set_uses(20);
  reply.mutable_token_created()->mutable_info()->set_role(pb::ROLE_NODE);
  reply.mutable_token_created()->mutable_info()->set_expires_unix_ms(around.now_unix_ms + 1000);
  reply.mutable_token_created()->set_secret(std::string(32, 's'));
  around.coordinator.answer(Body::kTokenCreate, reply);
  ASSERT_EQ(around({"token", "create", "--uses", "20", "--ttl", "48h", "-o", "json"}), kExitOk)
      << around.told();
  const pb::TokenCreate& asked = around.coordinator.asked[0].token_create();
  EXPECT_EQ(asked.role(), pb::ROLE_NODE);
  EXPECT_EQ(asked.uses(), 20U);
  EXPECT_EQ(asked.ttl_seconds(), 48U * 3600);
  const Json shown = json(around);
  const auto token = protocol::parse_token(shown["token"].get<std::string>(), around.now_unix_ms);
  ASSERT_TRUE(token.has_value()) << token.error().message;
  EXPECT_EQ(token->id.str(), "3f9a0c12be77");
  EXPECT_EQ(token->secret, std::string(32, 's'));
  EXPECT_EQ(token->coordinator_key, around.coordinator.place.coordinator_key);
  EXPECT_EQ(token->endpoints.blob, "tcp://10.0.0.1:7602");
  EXPECT_EQ(token->role, pb::ROLE_NODE);
  EXPECT_THAT(shown["join_command"].get<std::string>(), HasSubstr("skerryd join skerry1."));

  ASSERT_EQ(around({"token", "create"}), kExitOk);
  EXPECT_EQ(around.printed(),
            shown["token"].get<std::string>() + "\n");  // a script takes it as it is
  EXPECT_EQ(around.coordinator.asked[1].token_create().uses(), 1U);
  EXPECT_EQ(around.coordinator.asked[1].token_create().ttl_seconds(), 24U * 3600);
}

TEST(Token, ThatWouldLiveTooLongIsUsageAndAsksNobody) {
  FakeSurroundings around;
  EXPECT_EQ(around({"token", "create", "--ttl", "3651d"}), kExitUsage);
  EXPECT_THAT(around.told(), HasSubstr("3650d or less"));
  EXPECT_THAT(around.coordinator.asked, IsEmpty());
}

TEST(Token, ListSaysWhatIsLeftOfEach) {
  FakeSurroundings around;
  pb::AdminReply reply;
  const auto add = [&](std::uint32_t used, std::int64_t expires, bool revoked) {
    pb::TokenInfo& token = *reply.mutable_tokens()->add_tokens();
    token.set_uses(1);
    token.set_used(used);
    token.set_expires_unix_ms(around.now_unix_ms + expires);
    token.set_revoked(revoked);
  };
  add(0, 1, false);
  add(1, 1, false);
  add(0, 0, false);
  add(0, 1, true);
  around.coordinator.answer(Body::kTokenList, reply);
  ASSERT_EQ(around({"token", "list", "-o", "json"}), kExitOk);
  std::vector<std::string> states;
  const Json shown = json(around);
  for (const Json& token : shown["items"]) states.push_back(token["state"]);
  EXPECT_THAT(states, ElementsAre("open", "spent", "expired", "revoked"));
}

TEST(Login, TakesTheTokenFromTheArgumentOrTheEnvironment) {
  FakeSurroundings around;
  around.variables["XDG_CONFIG_HOME"] = "/nonexistent";
  EXPECT_EQ(around({"login"}), kExitUsage);
  EXPECT_EQ(around({"login", "skerry1.abc"}), kExitOk);
  around.variables["SKERRY_TOKEN"] = "skerry1.def";
  EXPECT_EQ(around({"login", "--context", "/nonexistent/mine.toml", "--name", "eva"}), kExitOk);
  EXPECT_THAT(around.logins,
              ElementsAre(ElementsAre("skerry1.abc", "", "/nonexistent/skerry/context.toml"),
                          ElementsAre("skerry1.def", "eva", "/nonexistent/mine.toml")));
}

TEST(Login, ReplacesAnotherOnlyIfAsked) {
  const TempFolder folder;
  const std::string notes = folder / "notes.txt", context = folder / "context.toml";
  std::ofstream(notes) << "not to be lost\n";
  protocol::Context known;
  known.name = "eva";
  known.role = pb::ROLE_ADMIN;
  known.endpoints = {"tcp://127.0.0.1:1", "tcp://127.0.0.1:2", "tcp://127.0.0.1:3"};
  known.seed = std::string(32, 'k');
  known.coordinator_key = protocol::Identity::from_seed(known.seed).value().ed25519_key();
  ASSERT_TRUE(protocol::write_context(context, known));
  FakeSurroundings around;
  EXPECT_EQ(around({"login", "skerry1.abc", "--context", notes}), kExitConflict);
  EXPECT_THAT(around.told(), HasSubstr("is there and is no context"));
  EXPECT_EQ(around({"login", "skerry1.abc", "--context", context}), kExitConflict);
  EXPECT_THAT(around.told(), HasSubstr("--yes replaces it"));
  EXPECT_THAT(around.logins, IsEmpty());
  EXPECT_EQ(around({"login", "skerry1.abc", "--context", context, "--yes"}), kExitOk);
}

TEST(Output, ThatCannotBeWrittenIsAnError) {
  FakeSurroundings around;
  around.coordinator.answers[pb::AdminRequest::kTokenList] = [](const pb::AdminRequest&) {
    pb::AdminReply none;
    none.mutable_tokens();
    return Result<pb::AdminReply>(none);
  };
  around.out().setstate(std::ios::badbit);
  EXPECT_EQ(around({"token", "list", "-o", "json"}), kExitError);
  EXPECT_THAT(around.told(), HasSubstr("the output could not be written"));
}

pb::AdminReply node_reply(const std::string& state, bool busy) {
  pb::AdminReply reply;
  pb::NodeInfo& node = *reply.mutable_nodes()->add_nodes();
  node.set_id("00112233445566778899aabbccddeeff");
  node.set_name("anna");
  node.set_state(state);
  node.set_role(pb::ROLE_NODE);
  node.set_last_seen_unix_ms(1'749'999'997'000);
  node.add_slots()->set_device("cpu");
  pb::SlotStatus& status = *node.add_status();
  if (!busy) return reply;
  status.set_run("r-0123456789");
  status.set_expert(2);
  status.set_step(40);
  status.set_phase(pb::SLOT_TRAINING);
  (*node.mutable_run_names())["r-0123456789"] = "fashion";
  return reply;
}

TEST(Node, ListHasTheFieldsThatScriptsRead) {
  FakeSurroundings around;
  around.coordinator.answer(Body::kNodeList, node_reply("training", true));
  ASSERT_EQ(around({"node", "list", "-o", "json"}), kExitOk);
  const Json node = json(around)["items"][0];
  EXPECT_EQ(node["id"], "00112233445566778899aabbccddeeff");
  EXPECT_EQ(node["name"], "anna");
  EXPECT_EQ(node["state"], "training");
  EXPECT_EQ(node["role"], "node");
  EXPECT_EQ(node["expert"], 2);
  EXPECT_EQ(node["last_seen"], "2025-06-15T15:06:37.000Z");
  EXPECT_EQ(node["slots"][0]["device"], "cpu");
  EXPECT_EQ(node["slots"][0]["step"], 40);
  for (const Json& work : {node, node["slots"][0]}) {
    EXPECT_EQ(work["run"], "r-0123456789");
    EXPECT_EQ(work["run_name"], "fashion");
  }
  EXPECT_TRUE(node["leaves_in_seconds"].is_null());
  ASSERT_EQ(around({"node", "list"}), kExitOk);
  EXPECT_THAT(around.printed(), AllOf(HasSubstr("anna"), HasSubstr("fashion/2 training at 40"),
                                      HasSubstr("3.0 s ago"), Not(HasSubstr("LEAVES IN"))));
  pb::AdminReply leaving = node_reply("draining", true);
  leaving.mutable_nodes()->mutable_nodes(0)->set_leaves_in_seconds(27);
  leaving.mutable_nodes()->mutable_nodes(0)->set_price(0.44);
  EXPECT_TRUE(node["price"].is_null());
  around.coordinator.answer(Body::kNodeList, leaving);
  ASSERT_EQ(around({"node", "list", "-o", "json"}), kExitOk);
  EXPECT_EQ(json(around)["items"][0]["leaves_in_seconds"], 27);
  EXPECT_EQ(json(around)["items"][0]["price"], 0.44);
  ASSERT_EQ(around({"node", "list"}), kExitOk);
  EXPECT_THAT(around.printed(),
              AllOf(HasSubstr("LEAVES IN"), HasSubstr("27 s"), HasSubstr("0.44/h")));
  around.coordinator.answer(Body::kNodeShow, node_reply("training", true));
  ASSERT_EQ(around({"node", "show", "anna"}), kExitOk);
  EXPECT_THAT(around.printed(), HasSubstr("fashion/2"));
}

TEST(Node, ListFollowsEveryPage) {
  FakeSurroundings around;
  around.coordinator.answers[Body::kNodeList] = [](const pb::AdminRequest& request) {
    pb::AdminReply reply = node_reply("ready", false);
    if (request.node_list().after().empty()) reply.mutable_nodes()->set_next("anna");
    return Result<pb::AdminReply>(reply);
  };
  ASSERT_EQ(around({"node", "list", "-o", "json"}), kExitOk);
  EXPECT_EQ(json(around)["items"].size(), 2U);
}

TEST(Node, DrainWaitsUntilTheWorkIsBack) {
  FakeSurroundings around;
  around.coordinator.answers[Body::kNodeShow] = [&around](const pb::AdminRequest&) {
    EXPECT_THAT(around.parting_words, HasSubstr("the drain of anna goes on"));
    return Result<pb::AdminReply>(node_reply("draining", around.waits < 3));
  };
  EXPECT_EQ(around({"node", "drain", "anna"}), kExitOk) << around.told();
  EXPECT_EQ(around.waits, 3);
  EXPECT_EQ(around.coordinator.asked[0].node_drain().name(), "anna");
  EXPECT_THAT(around.parting_words, IsEmpty());

  around.coordinator.answer(Body::kNodeShow, node_reply("lost", true));
  EXPECT_EQ(around({"node", "drain", "anna"}), kExitUnreachable);
  around.coordinator.answer(Body::kNodeShow, node_reply("left", false));
  EXPECT_EQ(around({"node", "drain", "anna"}), kExitOk);
}

TEST(Node, LogsAreAskedForUntilTheyAreThereOrTooLate) {
  FakeSurroundings around;
  around.coordinator.answers[Body::kNodeLogs] = [&around](const pb::AdminRequest&) {
    pb::AdminReply reply;
    reply.mutable_logs()->set_ready(around.waits >= 2);
    reply.mutable_logs()->add_lines("a line\x1b[2J");
    return Result<pb::AdminReply>(reply);
  };
  EXPECT_EQ(around({"node", "logs", "anna"}), kExitOk);
  EXPECT_EQ(around.printed(), "a line?[2J\n");
  pb::AdminReply never;
  never.mutable_logs();
  around.coordinator.answer(Body::kNodeLogs, never);
  EXPECT_EQ(around({"node", "logs", "anna"}), kExitTimeout);
}

TEST(Run, CreateSendsTheFileAndSaysWhatItMade) {
  const TempFolder folder;
  std::ofstream(folder / "run.toml") << example_run_file();
  FakeSurroundings around;
  around.coordinator.answer(Body::kRunCreate, run_reply("waiting"));
  ASSERT_EQ(around({"run", "create", "-f", folder / "run.toml", "--dry-run"}), kExitOk)
      << around.told();
  EXPECT_TRUE(around.coordinator.asked[0].run_create().dry_run());
  EXPECT_EQ(around.coordinator.asked[0].run_create().spec().preset(), "S/2");
  ASSERT_EQ(around({"run", "create", "-f", folder / "run.toml", "-o", "json"}), kExitOk);
  EXPECT_FALSE(around.coordinator.asked[1].run_create().dry_run());
  EXPECT_EQ(json(around)["id"], "r-0123456789");
  EXPECT_EQ(json(around)["created"], true);
}

TEST(Run, CreateOfWhatIsThereSaysSo) {
  const TempFolder folder;
  std::ofstream(folder / "run.toml") << example_run_file();
  FakeSurroundings around;
  pb::AdminReply there = run_reply("running");
  there.mutable_runs()->set_existed(true);
  around.coordinator.answer(Body::kRunCreate, there);
  EXPECT_EQ(around({"run", "create", "-f", folder / "run.toml"}), kExitOk);
  EXPECT_THAT(around.printed(),
              AllOf(HasSubstr("is there already: running"), Not(HasSubstr("created"))));
  EXPECT_EQ(around({"run", "create", "-f", folder / "run.toml", "-o", "json"}), kExitOk);
  EXPECT_EQ(json(around)["created"], false);
}

TEST(Run, CreateWithABadFileAsksNobody) {
  const TempFolder folder;
  std::ofstream(folder / "run.toml") << "name = \"x\"\ncolor = 1\n";
  FakeSurroundings around;
  EXPECT_EQ(around({"run", "create", "-f", folder / "run.toml"}), kExitUsage);
  EXPECT_THAT(around.told(), HasSubstr("run.toml:2:1: unknown key color"));
  EXPECT_EQ(around({"run", "create", "-f", folder / "none.toml"}), kExitNotFound);
  EXPECT_EQ(around({"run", "create"}), kExitUsage);
  EXPECT_THAT(around.coordinator.asked, IsEmpty());
  EXPECT_EQ(around({"run", "create", "--example"}), kExitOk);
  EXPECT_EQ(around.printed(), example_run_file());
}

TEST(Run, ShowTellsWhatItCosts) {
  FakeSurroundings around;
  pb::AdminReply reply = run_reply("running");
  around.coordinator.answer(Body::kRunShow, reply);
  ASSERT_EQ(around({"run", "show", "fashion", "-o", "json"}), kExitOk);
  EXPECT_EQ(json(around)["dollars"], 0);
  EXPECT_TRUE(json(around)["goodput"].is_null());
  ASSERT_EQ(around({"run", "show", "fashion"}), kExitOk);
  EXPECT_THAT(around.printed(), Not(HasSubstr("dollars")));
  pb::RunInfo& run = *reply.mutable_runs()->mutable_runs(0);
  run.set_dollars(3.5);
  run.set_dollars_per_hour(1.25);
  run.set_goodput(0.9);
  run.set_lost_steps(20);
  run.mutable_spec()->set_budget_dollars(10);
  run.mutable_experts(0)->set_dollars(2.5);
  run.mutable_experts(0)->set_cards(1);
  around.coordinator.answer(Body::kRunShow, reply);
  ASSERT_EQ(around({"run", "show", "fashion", "-o", "json"}), kExitOk);
  const Json shown = json(around);
  EXPECT_EQ(shown["dollars"], 3.5);
  EXPECT_EQ(shown["dollars_per_hour"], 1.25);
  EXPECT_EQ(shown["goodput"], 0.9);
  EXPECT_EQ(shown["lost_steps"], 20);
  EXPECT_EQ(shown["spec"]["budget"]["dollars"], 10);
  EXPECT_EQ(shown["experts"][0]["dollars"], 2.5);
  EXPECT_EQ(shown["experts"][0]["cards"], 1);
  ASSERT_EQ(around({"run", "show", "fashion"}), kExitOk);
  EXPECT_THAT(around.printed(),
              AllOf(HasSubstr("3.50 of 10.00 dollars spent, 1.25 dollars an hour"),
                    HasSubstr("goodput 90.0 % (20 steps lost)")));
}

TEST(Run, BudgetChangesWhatIsGiven) {
  FakeSurroundings around;
  around.coordinator.answer(Body::kRunShow, run_reply("running"));
  EXPECT_EQ(around({"run", "budget", "fashion"}), kExitUsage);
  EXPECT_THAT(around.told(), HasSubstr("expected --dollars, --dollars-per-hour"));
  for (const std::string bad : {"-1", "nan", "1e12"}) {
    EXPECT_EQ(around({"run", "budget", "fashion", "--dollars=" + bad}), kExitUsage) << bad;
    EXPECT_THAT(around.told(), HasSubstr("expected a number of dollars from 0"));
  }
  EXPECT_THAT(around.coordinator.asked, IsEmpty());
  EXPECT_EQ(around({"run", "budget", "fashion", "--dollars", "50", "--max-node-price", "0"}),
            kExitOk);
  const pb::RunBudget& asked = around.coordinator.asked.at(0).run_budget();
  EXPECT_EQ(asked.run(), "fashion");
  EXPECT_EQ(asked.dollars(), 50);
  EXPECT_FALSE(asked.has_dollars_per_hour());
  EXPECT_TRUE(asked.has_max_node_price());
}

TEST(Run, ShowHasTheFieldsThatScriptsReadAndNullsWhereThereIsNothing) {
  FakeSurroundings around;
  around.coordinator.answer(Body::kRunShow, run_reply("running"));
  ASSERT_EQ(around({"run", "show", "fashion", "-o", "json"}), kExitOk);
  const Json run = json(around);
  EXPECT_EQ(run["name"], "fashion");
  EXPECT_EQ(run["id"], "r-0123456789");
  EXPECT_EQ(run["state"], "running");
  EXPECT_TRUE(run["reason"].is_null());
  EXPECT_EQ(run["samples_per_second"], 120.5);
  EXPECT_TRUE(run["eta_seconds"].is_null());
  const Json& trained = run["experts"][0];
  EXPECT_EQ(trained["index"], 0);
  EXPECT_EQ(trained["step"], 100);
  EXPECT_EQ(trained["steps_target"], 200);
  EXPECT_EQ(trained["epoch"], 7);
  EXPECT_EQ(trained["node"], "anna");
  EXPECT_EQ(trained["loss"], 0.25);
  EXPECT_EQ(trained["checkpoint"],
            "1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f");
  EXPECT_EQ(trained["committed_at"], "2025-06-15T15:06:40.000Z");
  EXPECT_EQ(trained["phase"], "training");
  EXPECT_EQ(trained["attempt"], 0);
  EXPECT_EQ(trained["copies"], 2);
  EXPECT_EQ(trained["unanchored_steps"], 50);
  const Json& waiting = run["experts"][1];
  for (const auto key : {"node", "loss", "checkpoint", "committed_at"})
    EXPECT_TRUE(waiting[key].is_null()) << key;
  ASSERT_EQ(around({"run", "show", "fashion"}), kExitOk);
  EXPECT_THAT(around.printed(), AllOf(HasSubstr("1f1f1f1f1f1f  2 "), HasSubstr("anna"),
                                      HasSubstr("50 committed steps stand unanchored")));
}

TEST(Run, WatchEndsWithTheRun) {
  FakeSurroundings around;
  const auto ends_as = [&around](const std::string& state) {
    around.waits = 0;
    around.coordinator.answers[Body::kRunShow] = [&around, state](const pb::AdminRequest&) {
      return Result<pb::AdminReply>(run_reply(around.waits < 3 ? "running" : state));
    };
    return around({"run", "watch", "fashion", "-o", "json"});
  };
  EXPECT_EQ(ends_as("done"), kExitOk);
  EXPECT_EQ(around.waits, 3);
  // One line for each change.
  EXPECT_EQ(around.told().find('\n'), std::string::npos);
  const std::string printed = around.printed();
  EXPECT_EQ(std::count(printed.begin(), printed.end(), '\n'), 2);
  EXPECT_EQ(ends_as("failed"), kExitUnhealthy);
  EXPECT_EQ(ends_as("stopped"), kExitUnhealthy);
}

TEST(Run, WatchBearsACoordinatorThatRestarts) {
  FakeSurroundings around;
  around.coordinator.answers[Body::kRunShow] =
      [&around](const pb::AdminRequest&) -> Result<pb::AdminReply> {
    if (around.waits == 1) return fail(ErrorCode::kUnavailable, "away");
    return run_reply(around.waits < 3 ? "running" : "done");
  };
  EXPECT_EQ(around({"run", "watch", "fashion"}), kExitOk);
  around.waits = 1;  // away from the first question on
  EXPECT_EQ(around({"run", "watch", "fashion"}), kExitUnreachable);
}

TEST(Run, ExpertsLeaveAndJoin) {
  FakeSurroundings around;
  EXPECT_EQ(around({"run", "expert", "remove", "fashion", "4"}), kExitOk);
  EXPECT_EQ(around({"run", "expert", "add", "fashion", "4"}), kExitOk);
  ASSERT_EQ(around.coordinator.asked.size(), 2U);
  for (const bool add : {false, true}) {
    const pb::RunExpert& asked = around.coordinator.asked[add ? 1 : 0].run_expert();
    EXPECT_EQ(asked.run(), "fashion");
    EXPECT_EQ(asked.expert(), 4U);
    EXPECT_EQ(asked.add(), add);
  }
  EXPECT_EQ(around({"run", "expert", "remove", "fashion"}), kExitUsage);
}

TEST(Run, AdoptAsksUntilNothingIsMissing) {
  FakeSurroundings around;
  around.coordinator.answers[Body::kRunAdopt] =
      [&around](const pb::AdminRequest&) -> Result<pb::AdminReply> {
    pb::AdminReply reply;
    if (around.waits < 3) {
      reply.mutable_adopted()->add_missing(
          "expert 0's checkpoint of step 20: no connected node has given it back yet");
    } else {
      reply.mutable_adopted()->set_done(true);
      *reply.mutable_adopted()->mutable_run() = run_reply("running").runs().runs(0);
    }
    return reply;
  };
  EXPECT_EQ(around({"run", "adopt", "fashion", "-o", "json"}), kExitOk);
  EXPECT_EQ(json(around)["adopted"], true);
  EXPECT_EQ(json(around)["missing"].size(), 0U);
  EXPECT_FALSE(around.coordinator.asked[0].run_adopt().partial());
}

TEST(Run, AdoptNamesWhatIsMissingAndEndsUnhealthy) {
  FakeSurroundings around;
  pb::AdminReply reply;
  reply.mutable_adopted()->add_missing(
      "its specification: no connected node has given it back yet");
  around.coordinator.answer(Body::kRunAdopt, reply);
  EXPECT_EQ(around({"run", "adopt", "fashion", "--wait", "3"}), kExitUnhealthy);
  EXPECT_EQ(around.waits, 3);
  EXPECT_EQ(around({"run", "adopt", "fashion", "--wait", "3", "--partial"}), kExitUnhealthy);
  EXPECT_TRUE(around.coordinator.asked.back().run_adopt().partial())
      << "once nothing came for as long as it waits";
}

TEST(Run, ExtendWhyAndList) {
  FakeSurroundings around;
  EXPECT_EQ(around({"run", "extend", "fashion", "--steps", "4000"}), kExitOk);
  EXPECT_EQ(around.coordinator.asked[0].run_extend().run(), "fashion");
  EXPECT_EQ(around.coordinator.asked[0].run_extend().steps(), 4000U);
  pb::AdminReply why;
  why.mutable_why()->add_reasons("expert 0: waits for a free node");
  around.coordinator.answer(Body::kRunWhy, why);
  EXPECT_EQ(around({"run", "why", "fashion"}), kExitOk);
  EXPECT_EQ(around.printed(), "expert 0: waits for a free node\n");
  around.coordinator.answer(Body::kRunList, run_reply("running"));
  ASSERT_EQ(around({"run", "list", "-o", "json"}), kExitOk);
  EXPECT_EQ(json(around)["items"][0]["name"], "fashion");
}

// So many points of each expert, a point a page.
FakeCoordinator::Answer history_of(std::uint64_t points) {
  return [points](const pb::AdminRequest& request) {
    const pb::RunHistory& asked = request.run_history();
    pb::AdminReply reply;
    reply.mutable_history();
    if (asked.after() >= points) return Result<pb::AdminReply>(reply);
    pb::HistoryPoint& point = *reply.mutable_history()->add_points();
    point.set_number(asked.after() + 1);
    point.set_step(10 * point.number());
    point.set_unix_ms(1'750'000'000'000);
    point.set_loss(.5);
    point.set_samples(640);
    point.set_train_seconds(2);
    point.set_node("anna");
    point.set_epoch(7);
    return Result<pb::AdminReply>(reply);
  };
}

TEST(Run, HistoryIsOfEveryExpertOrOfOne) {
  FakeSurroundings around;
  around.coordinator.answer(Body::kRunShow, run_reply("running"));
  around.coordinator.answers[Body::kRunHistory] = history_of(2);
  ASSERT_EQ(around({"run", "history", "fashion", "-o", "json"}), kExitOk);
  const Json items = json(around)["items"];
  ASSERT_EQ(items.size(), 4U);
  EXPECT_EQ(items[3]["expert"], 1);
  EXPECT_EQ(items[3]["number"], 2);
  EXPECT_EQ(items[3]["step"], 20);
  EXPECT_EQ(items[3]["time"], "2025-06-15T15:06:40.000Z");
  EXPECT_EQ(items[3]["loss"], .5);
  EXPECT_EQ(items[3]["train_seconds"], 2);
  EXPECT_EQ(items[3]["node"], "anna");
  ASSERT_EQ(around({"run", "history", "fashion", "--expert", "1", "--after", "1"}), kExitOk);
  EXPECT_EQ(around.coordinator.asked.back().run_history().expert(), 1U);
  EXPECT_THAT(around.printed(), HasSubstr("320.0"));
  around.coordinator.answer(Body::kRunHistory, *history_of(1)({}));
  EXPECT_EQ(around({"run", "history", "fashion"}), kExitError) << "the same page without end";
}

TEST(Run, LogAddsWhatIsNewAlsoAfterAnInterruption) {
  FakeSurroundings around;
  const TempFolder folder;
  const std::string lines = folder / "log/history.jsonl";
  const auto log = [&](std::uint64_t points) {
    around.coordinator.answers[Body::kRunHistory] = history_of(points);
    EXPECT_EQ(around({"run", "log", "fashion", "-o", folder / "log"}), kExitOk);
    std::vector<Json> found;
    std::ifstream in(lines);
    for (std::string line; std::getline(in, line);) found.push_back(Json::parse(line));
    return found;
  };
  around.coordinator.answer(Body::kRunShow, run_reply("running"));
  const std::vector<Json> first = log(2);
  ASSERT_EQ(first.size(), 4U);
  EXPECT_EQ(first[0]["run"], "r-0123456789");
  EXPECT_EQ(first[3]["expert"], 1);
  EXPECT_EQ(first[3]["loss"], .5);
  std::filesystem::resize_file(lines, std::filesystem::file_size(lines) - 5);
  EXPECT_EQ(log(2), first);
  EXPECT_EQ(log(3).size(), 6U);
  EXPECT_EQ(around.coordinator.asked.back().run_history().after(), 3U) << "from there on";
  EXPECT_THAT(std::filesystem::directory_iterator(folder / "log/expert-1")->path().filename(),
              ::testing::StartsWith("events.out.tfevents."));
  std::ofstream(lines, std::ios::app) << "no point\n";
  EXPECT_EQ(around({"run", "log", "fashion", "-o", folder / "log"}), kExitError);
  EXPECT_THAT(around.told(), HasSubstr("history.jsonl:7: expected a point"));
}

TEST(Run, LogIsWrittenByOneCommandAtATime) {
  FakeSurroundings around;
  const TempFolder folder;
  const auto lock = storage::lock_folder(folder / "log", "busy");
  ASSERT_TRUE(lock);
  around.coordinator.answer(Body::kRunShow, run_reply("running"));
  EXPECT_EQ(around({"run", "log", "fashion", "-o", folder / "log"}), kExitConflict);
  EXPECT_THAT(around.told(), HasSubstr("another `skerry run log` writes to"));
}

TEST(Run, LogIsOfOneRun) {
  FakeSurroundings around;
  const TempFolder folder;
  std::ofstream(folder / "history.jsonl") << R"({"run":"r-other","expert":0,"number":1})" << '\n';
  around.coordinator.answer(Body::kRunShow, run_reply("running"));
  EXPECT_NE(around({"run", "log", "fashion", "-o", folder / ""}), kExitOk);
  EXPECT_THAT(around.told(), HasSubstr("has the log of run r-other"));
}

TEST(Run, LogWatchesUntilTheRunEnds) {
  FakeSurroundings around;
  const TempFolder folder;
  int shown = 0;
  around.coordinator.answers[Body::kRunShow] = [&](const pb::AdminRequest&) {
    pb::AdminReply reply = run_reply(++shown < 4 ? "running" : "done");
    reply.mutable_runs()->mutable_runs(0)->mutable_experts(0)->set_committed_unix_ms(shown);
    around.coordinator.answers[Body::kRunHistory] =
        history_of(static_cast<std::uint64_t>(std::min(shown, 4)));
    return Result<pb::AdminReply>(reply);
  };
  EXPECT_EQ(around({"run", "log", "fashion", "-o", folder / "log", "--watch"}), kExitOk);
  std::ifstream in(folder / "log/history.jsonl");
  EXPECT_EQ(std::count(std::istreambuf_iterator<char>(in), {}, '\n'), 8);
}

TEST(Run, AnAnswerToAnotherQuestionIsAnError) {
  FakeSurroundings around;  // acknowledges everything
  EXPECT_EQ(around({"run", "show", "fashion"}), kExitError);
  EXPECT_EQ(around({"node", "list"}), kExitError);
}

TEST(Shard, List) {
  FakeSurroundings around;
  pb::AdminReply reply;
  pb::ShardInfo& shard = *reply.mutable_shards()->add_shards();
  shard.set_partition(3);
  shard.mutable_object()->set_name("shard-3-0.safetensors");
  around.coordinator.answer(Body::kShardList, reply);
  ASSERT_EQ(around({"shard", "list", "fashion", "-o", "json"}), kExitOk);
  EXPECT_EQ(json(around)["items"][0]["partition"], 3);
  EXPECT_TRUE(json(around)["items"][0]["node"].is_null());
}

pb::AdminReply events_reply(std::uint64_t first, std::uint64_t last) {
  pb::AdminReply reply;
  reply.mutable_events();
  for (std::uint64_t number = first; number <= last; ++number) {
    pb::Event& event = *reply.mutable_events()->add_events();
    event.set_number(number);
    event.set_unix_ms(1'750'000'000'000);
    event.set_kind("node_joined");
    event.set_expert(-1);
  }
  if (first <= last) reply.mutable_events()->set_next(last);
  return reply;
}

TEST(Event, ListFollowsEveryPageAndHasNullsWhereThereIsNothing) {
  FakeSurroundings around;
  around.coordinator.answers[Body::kEventList] = [](const pb::AdminRequest& request) {
    const std::uint64_t after = request.event_list().after();
    EXPECT_EQ(request.event_list().run(), "fashion");
    return Result<pb::AdminReply>(events_reply(after + 1, std::min<std::uint64_t>(after + 2, 5)));
  };
  ASSERT_EQ(around({"event", "list", "--run", "fashion", "-o", "json"}), kExitOk);
  const Json items = json(around)["items"];
  ASSERT_EQ(items.size(), 5U);
  EXPECT_EQ(items[4]["number"], 5);
  EXPECT_EQ(items[0]["kind"], "node_joined");
  EXPECT_EQ(items[0]["time"], "2025-06-15T15:06:40.000Z");
  for (const auto key : {"run", "expert", "node", "reason", "step", "epoch"})
    EXPECT_TRUE(items[0][key].is_null()) << key;
}

TEST(Event, AnExpertsStepIsANumberAlsoWhereItIsTheFirst) {
  FakeSurroundings around;
  pb::AdminReply reply = events_reply(1, 1);
  pb::Event& event = *reply.mutable_events()->mutable_events(0);
  event.set_expert(0);
  event.set_epoch(7);
  around.coordinator.answers[Body::kEventList] = [&](const pb::AdminRequest& request) {
    return Result<pb::AdminReply>(request.event_list().after() == 0 ? reply : events_reply(2, 1));
  };
  ASSERT_EQ(around({"event", "list", "-o", "json"}), kExitOk);
  const Json shown = json(around)["items"][0];
  EXPECT_EQ(shown["step"], 0);
  EXPECT_EQ(shown["epoch"], 7);
}

TEST(Event, FollowPrintsOneObjectALine) {
  FakeSurroundings around;
  around.coordinator.answers[Body::kEventList] =
      [&around](const pb::AdminRequest& request) -> Result<pb::AdminReply> {
    if (around.waits == 2) return fail(ErrorCode::kTimeout, "no answer");     // it restarts
    if (around.waits == 5) return fail(ErrorCode::kUnauthorised, "revoked");  // ends the test
    const std::uint64_t after = request.event_list().after();
    return events_reply(after + 1, static_cast<std::uint64_t>(around.waits) + 1);
  };
  EXPECT_EQ(around({"event", "list", "--follow", "-o", "json"}), kExitAuth);
  EXPECT_THAT(around.told(),
              AllOf(HasSubstr("away, trying again: no answer"), HasSubstr("is back")));
  std::istringstream lines(around.printed());
  std::vector<int> numbers;
  for (std::string line; std::getline(lines, line);) numbers.push_back(Json::parse(line)["number"]);
  EXPECT_THAT(numbers, ElementsAre(1, 2, 3, 4, 5));
}

TEST(Event, FollowOfACoordinatorThatWasNeverThereIsAnErrorAtOnce) {
  FakeSurroundings around;
  around.coordinator.refuse(Body::kEventList, ErrorCode::kUnavailable, "nobody there");
  EXPECT_EQ(around({"event", "list", "--follow"}), kExitUnreachable);
  EXPECT_EQ(around.waits, 0);
}

TEST(Sample, HandsOverToTheEngineWithTheSameFlags) {
  const TempFolder folder;
  std::ofstream(folder / "ensemble.json") << R"({"classes":["disc","square"]})";
  const std::string ensemble = folder.path().string();
  FakeSurroundings around;
  around.programs["skerry-engine"] = true;
  ASSERT_EQ(around({"sample",  ensemble,     "-n",     "9",       "--steps", "30",       "--solver",
                    "heun",    "--guidance", "2",      "--route", "top2",    "--router", "learned",
                    "--label", "square",     "--seed", "4",       "-o",      "grid.png"}),
            kExitOk)
      << around.told();
  EXPECT_THAT(around.ran.at(0),
              ElementsAre("/bin/skerry-engine", "sample", ensemble, "-n", "9", "--steps", "30",
                          "--solver", "heun", "--guidance", "2", "--route", "top2", "--router",
                          "learned", "--seed", "4", "-o", "grid.png", "--label", "1"));
  EXPECT_EQ(around({"sample", ensemble, "--label", "0", "-o", "grid.png"}), kExitOk);
  EXPECT_EQ(around({"sample", ensemble, "--vae", "folder", "-o", "grid.png"}), kExitOk);
  EXPECT_THAT(std::vector(around.ran.back().end() - 2, around.ran.back().end()),
              ElementsAre("--vae", "folder"));
  EXPECT_EQ(around({"sample", ensemble, "--prompt", "a cat", "--prompt", "-b", "--text-encoder",
                    "t5", "-o", "grid.png"}),
            kExitOk);
  EXPECT_THAT(around.ran.back(),
              IsSupersetOf({"--text-encoder", "t5", "--prompt=a cat", "--prompt=-b"}));
  EXPECT_EQ(around({"sample", ensemble, "--prompt", "a cat", "-o", "grid.png"}), kExitUsage);
  EXPECT_EQ(around({"sample", ensemble, "--expert", "3", "-o", "grid.png"}), kExitOk);
  EXPECT_THAT(
      around.ran.back(),
      ElementsAre("/bin/skerry-engine", "sample", ensemble, "-n", "16", "--steps", "50", "--solver",
                  "euler", "--guidance", "1", "--expert", "3", "--seed", "0", "-o", "grid.png"));
  EXPECT_EQ(around({"sample", ensemble, "--expert", "3", "--route", "top1", "-o", "grid.png"}),
            kExitUsage);
  EXPECT_EQ(around({"sample", ensemble, "--label", "2", "-o", "grid.png"}), kExitUsage);
  EXPECT_THAT(around.told(), HasSubstr("the classes are disc, square"));
  EXPECT_EQ(around({"sample", ensemble, "--route", "learned", "-o", "grid.png"}), kExitUsage);
  EXPECT_EQ(around({"sample", ensemble + "/none", "-o", "grid.png"}), kExitNotFound);
  EXPECT_EQ(around({"sample", ensemble}), kExitUsage);
  EXPECT_EQ(around({"sample", ensemble, "-o", ensemble}), kExitUsage);
  EXPECT_EQ(around({"sample", ensemble, "-o", ensemble + "/none/grid.png"}), kExitNotFound);
  EXPECT_EQ(around.ran.size(), 5U);
}

TEST(Doctor, IsHealthyUnlessSomethingFailed) {
  FakeSurroundings around;
  pb::AdminReply reply;
  reply.mutable_status()->set_version(own_version());
  reply.mutable_status()->set_now_unix_ms(around.now_unix_ms + 100);
  around.coordinator.answer(Body::kStatus, reply);
  around.found_cards = std::vector<Card>{{"NVIDIA H200", "GPU-a", 150'000'000'000, "9.0"}};
  ASSERT_EQ(around({"doctor", "-o", "json"}), kExitOk) << around.printed();
  std::map<std::string, Json> checks;
  const Json shown = json(around);
  for (const Json& check : shown["items"]) checks[check["name"]] = check;
  EXPECT_EQ(checks["gpu"]["status"], "ok");
  EXPECT_EQ(checks["engine"]["status"], "warning");
  EXPECT_EQ(checks["clock"]["status"], "ok");
  EXPECT_EQ(checks["versions"]["status"], "ok");
  reply.set_lacks_room(true);
  around.coordinator.answer(Body::kStatus, reply);
  EXPECT_EQ(around({"doctor"}), kExitUnhealthy);
  EXPECT_THAT(around.printed(), HasSubstr("its disk is full"));
  reply.set_lacks_room(false);
  reply.mutable_status()->set_version("0.0.0");
  reply.mutable_status()->set_software("skerry-coordinator 0.0.0");
  around.coordinator.answer(Body::kStatus, reply);
  ASSERT_EQ(around({"doctor"}), kExitOk);
  EXPECT_THAT(around.printed(),
              AllOf(HasSubstr(own_software()), HasSubstr("coordinator 0.0.0: they differ")));
  reply.mutable_status()->set_now_unix_ms(around.now_unix_ms - 60'000);
  around.coordinator.answer(Body::kStatus, reply);
  ASSERT_EQ(around({"doctor"}), kExitOk);
  EXPECT_THAT(around.printed(), HasSubstr("60000 ms behind"));
  around.unreachable = true;
  EXPECT_EQ(around({"doctor"}), kExitUnhealthy);
  EXPECT_EQ(around({"doctor", "--data", "/nowhere"}), kExitUnhealthy);
}

TEST(Doctor, NamesThePortThatIsClosed) {
  FakeSurroundings around;
  EXPECT_EQ(around({"doctor"}), kExitOk) << around.printed();
  around.closed_ports.insert(around.coordinator.place.endpoints.blob);
  EXPECT_EQ(around({"doctor"}), kExitUnhealthy);
  EXPECT_THAT(around.printed(), AllOf(HasSubstr("blob tcp://10.0.0.1:7602 (no connection"),
                                      Not(HasSubstr("control tcp://10.0.0.1:7601 ("))));
}

TEST(Doctor, OnARentedMachineNeedsOnlyTheToken) {
  FakeSurroundings around;
  around.unreachable = true;
  const Place& place = around.coordinator.place;
  const std::string token = protocol::format_token({.endpoints = place.endpoints,
                                                    .coordinator_key = place.coordinator_key,
                                                    .id = TokenId("0123456789ab"),
                                                    .secret = std::string(32, 's'),
                                                    .role = pb::ROLE_NODE,
                                                    .expires_unix_ms = around.now_unix_ms + 1000});
  EXPECT_EQ(around({"doctor", "--token", token}), kExitOk) << around.printed();
  EXPECT_THAT(around.printed(),
              AllOf(HasSubstr("of role node"), HasSubstr("enrol tcp://10.0.0.1:7600 in")));
  EXPECT_THAT(around.coordinator.asked, IsEmpty());
  around.now_unix_ms += 2000;
  EXPECT_EQ(around({"doctor", "--token", token}), kExitUnhealthy);
  EXPECT_THAT(around.printed(), HasSubstr("expired"));
}

TEST(Doctor, AGpuThatTheEngineCannotUseIsAFailure) {
  FakeSurroundings around;
  around.programs = {{"skerry-engine", true}};
  around.found_cards = std::vector<Card>{{"NVIDIA H200", "GPU-a", 150'000'000'000, "9.0"}};
  around.driver_version = "550.1";
  std::string devices = "1 CUDA device";
  around.run = [&](const std::vector<std::string>& words, const OnLine& on_line) {
    if (words[1] == "--version") on_line("skerry-engine 1 (" + devices + ")");
    return 0;
  };
  EXPECT_EQ(around({"doctor"}), kExitOk) << around.printed();
  devices = "no CUDA device";
  EXPECT_EQ(around({"doctor"}), kExitUnhealthy);
  EXPECT_THAT(around.printed(), HasSubstr("the engine can use none of them"));
  devices = "LibTorch 2.11.0 for CUDA 13.0, no CUDA device";
  EXPECT_EQ(around({"doctor"}), kExitUnhealthy);
  EXPECT_THAT(around.printed(),
              AllOf(HasSubstr("driver 550.1, where the engine's CUDA 13.0 needs 580.65 or newer"),
                    HasSubstr("newer driver, or build the engine against")));
}

TEST(Doctor, ADriverThatDoesNotAnswerIsAFailure) {
  FakeSurroundings around;
  around.found_cards = fail(ErrorCode::kTimeout, "cannot list the cards");
  EXPECT_EQ(around({"doctor"}), kExitUnhealthy);
  EXPECT_THAT(around.printed(), HasSubstr("cannot list the cards"));
}

TEST(Doctor, EachCardTakesAStep) {
  FakeSurroundings around;
  around.programs = {{"skerry-engine", true}};
  around.found_cards = std::vector<Card>{{"NVIDIA H200", "GPU-new", 150'000'000'000, "9.0"},
                                         {"Tesla V100", "GPU-old", 16'000'000'000, "7.0"}};
  std::vector<std::string> tried;
  std::string broken;
  around.run = [&](const std::vector<std::string>& words, const OnLine& on_line) {
    if (words[1] != "check") return 0;
    tried.push_back(around.run_environment.at(0));
    if (tried.back() != broken) return 0;
    on_line("CUDA error: no kernel image is available for execution on the device");
    return 1;
  };
  EXPECT_EQ(around({"doctor"}), kExitOk) << around.printed();
  EXPECT_THAT(tried, ElementsAre("CUDA_VISIBLE_DEVICES=GPU-new", "CUDA_VISIBLE_DEVICES=GPU-old"));
  broken = "CUDA_VISIBLE_DEVICES=GPU-old";
  EXPECT_EQ(around({"doctor"}), kExitUnhealthy);
  EXPECT_THAT(around.printed(),
              AllOf(HasSubstr("cannot train on Tesla V100 (GPU-old, compute capability 7.0)"),
                    HasSubstr("no kernel image"), HasSubstr("./dev setup --torch DIR"),
                    HasSubstr("CUDA_VISIBLE_DEVICES=GPU-new")));
}

TEST(Doctor, TheCpuTakesAStepWhereThereIsNoCard) {
  FakeSurroundings around;
  around.programs = {{"skerry-engine", true}};
  around.run = [](const std::vector<std::string>& words, const OnLine&) {
    return words[1] == "check" ? 132 : 0;
  };
  EXPECT_EQ(around({"doctor"}), kExitUnhealthy);
  EXPECT_THAT(around.printed(), HasSubstr("cannot train on the CPU"));
  EXPECT_THAT(around.ran.back(), ElementsAre("/bin/skerry-engine", "check", "--device", "-1"));
}

TEST(Completion, KnowsEveryCommand) {
  FakeSurroundings around;
  ASSERT_EQ(around({"completion", "bash"}), kExitOk);
  EXPECT_THAT(around.printed(), AllOf(HasSubstr("'node drain')"), HasSubstr("--dry-run"),
                                      HasSubstr("-F _skerry skerry")));
  ASSERT_EQ(around({"completion", "zsh"}), kExitOk);
  EXPECT_THAT(around.printed(),
              AllOf(HasSubstr("bashcompinit"), HasSubstr("complete -o default -F")));
  ASSERT_EQ(around({"completion", "fish"}), kExitOk);
  EXPECT_THAT(around.printed(), AllOf(HasSubstr("-a node -d"),
                                      HasSubstr("'__fish_seen_subcommand_from node; and not"),
                                      HasSubstr("-l dry-run\n"), HasSubstr("-l context -r")));
  EXPECT_EQ(around({"--version"}), kExitOk);
  EXPECT_THAT(around.printed(), HasSubstr("skerry "));
  EXPECT_EQ(around({"version"}), kExitOk);
  EXPECT_THAT(around.printed(), HasSubstr("skerry "));
}

}  // namespace
}  // namespace skerry::cli
