// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <utility>

#include "cli/shell/exit_code.h"
#include "cli/shell/output.h"
#include "cli/testing/offered_ensemble.h"
#include "storage/folder_lock.h"

namespace skerry::cli {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

// The run of two experts, at 100 and 60 steps, and an engine whose picture says
// which steps it was drawn from.
class RunPreview : public OfferedEnsemble {
 protected:
  RunPreview() {
    out = folder / "pictures";
    around.programs["skerry-engine"] = true;
    around.run = [this](const auto& words, const auto&) { return draw(words); };
    around.coordinator.answers[pb::AdminRequest::kEnsemble] = [this](const auto&) {
      pb::AdminReply reply;
      *reply.mutable_ensemble() = ensemble;
      *reply.mutable_ensemble()->mutable_run() = shown();
      return Result<pb::AdminReply>(reply);
    };
    around.coordinator.answers[pb::AdminRequest::kRunShow] =
        [this](const auto&) -> Result<pb::AdminReply> {
      if (away) return fail(ErrorCode::kUnavailable, "nobody there");
      pb::AdminReply reply;
      *reply.mutable_runs()->add_runs() = shown();
      return reply;
    };
  }

  pb::RunInfo shown() const {
    pb::RunInfo run = ensemble.run();
    const auto show = [&run](const pb::EnsembleExpert& from, bool router) {
      pb::ExpertInfo& expert = *run.add_experts();
      expert.set_index(from.index());
      expert.set_step(from.step());
      expert.set_checkpoint(from.checkpoint().manifest());
      expert.set_router(router);
    };
    for (const pb::EnsembleExpert& expert : ensemble.experts()) show(expert, false);
    if (ensemble.has_learned_router()) show(ensemble.learned_router(), true);
    return run;
  }

  void commit_step(int expert, std::uint64_t step) {
    commit(*ensemble.mutable_experts(expert), static_cast<std::uint32_t>(expert), step);
  }

  int draw(const std::vector<std::string>& words) {
    if (engine_status != 0) return engine_status;
    std::ifstream file(words.at(2) + "/ensemble.json");
    const Json index = Json::parse(file);
    std::string picture;
    for (const Json& expert : index["experts"]) picture += text(expert["step"].get<int>(), ' ');
    const auto expert = std::ranges::find(words, "--expert");
    if (expert != words.end()) picture += "by " + expert[1];
    std::ofstream(std::ranges::find(words, "-o")[1]) << picture;
    if (while_drawing) while_drawing();
    return 0;
  }

  int preview(std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"run", "preview", "fashion", "-o", out});
    return around(more);
  }
  // What happens while it waits for the first, second, … time.
  void meanwhile(std::vector<std::function<void()>> happens) {
    around.waits = 0;
    around.on_wait = [this, happens] {
      const auto at = static_cast<std::size_t>(around.waits - 1);
      ASSERT_LT(at, happens.size()) << "it waits on";
      happens[at]();
    };
  }
  std::set<std::string> files() const {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(out))
      names.insert(entry.path().filename().string());
    return names;
  }
  // How many chunks of an expert's head have come.
  std::size_t chunks_of(int expert) const {
    const std::string& head = ensemble.experts(expert).checkpoint().manifest();
    return static_cast<std::size_t>(std::ranges::count_if(
        around.coordinator.fetched,
        [&](const auto& each) { return each.first.raw() == head && each.first != each.second; }));
  }
  void end(const std::string& state) { ensemble.mutable_run()->set_state(state); }

  bool away = false;
  int engine_status = 0;
  std::function<void()> while_drawing;
};

TEST_F(RunPreview, DrawsWhatIsCommittedUnderTheMeanOfTheSteps) {
  ASSERT_EQ(preview({"-n", "9", "--label", "square", "--guidance", "2"}), kExitOk) << around.told();
  EXPECT_EQ(around.printed(), out + "/step-00000080.png\n");
  EXPECT_THAT(around.ran,
              ElementsAre(ElementsAre("/bin/skerry-engine", "sample", out + "/.ensemble/model",
                                      "-n", "9", "--steps", "50", "--solver", "euler", "--guidance",
                                      "2", "--route", "ancestral", "--seed", "0", "-o",
                                      out + "/step-00000080.png", "--label", "1")));
  EXPECT_EQ(files(), (std::set<std::string>{"latest.png", "preview.json", "step-00000080.png"}));
  EXPECT_EQ(read("step-00000080.png"), "100 60 ");
  EXPECT_EQ(read("latest.png"), "100 60 ");
  EXPECT_EQ(chunks_of(0), checkpoints[0].ema.size());  // no training state
}

TEST_F(RunPreview, WhatIsThereIsNotDrawnAgain) {
  ASSERT_EQ(preview(), kExitOk);
  const std::size_t fetched = around.coordinator.fetched.size();
  fs::remove(out + "/latest.png");
  ASSERT_EQ(preview(), kExitOk) << around.told();
  EXPECT_EQ(around.printed(), out + "/step-00000080.png\n");
  EXPECT_EQ(around.ran.size(), 1U);
  EXPECT_EQ(around.coordinator.fetched.size(), fetched);
  EXPECT_EQ(read("latest.png"), "100 60 ");
  commit_step(0, 140);
  ASSERT_EQ(preview(), kExitOk);
  EXPECT_EQ(around.printed(), out + "/step-00000100.png\n");
  EXPECT_EQ(read("latest.png"), "140 60 ");
  EXPECT_EQ(read("step-00000080.png"), "100 60 ");
}

TEST_F(RunPreview, EachExpertDrawsItsOwnBesideItAndScriptsReadThePaths) {
  ASSERT_EQ(preview(), kExitOk);
  ASSERT_EQ(around({"-o", "json", "run", "preview", "fashion", "-o", out, "--experts"}), kExitOk)
      << around.told();
  EXPECT_EQ(around.ran.size(), 3U);  // not the one that is there
  EXPECT_THAT(around.ran.back(), AllOf(Contains("--expert"), Not(Contains("--route"))));
  EXPECT_EQ(read("step-00000080-expert-1.png"), "100 60 by 1");
  const Json object = Json::parse(around.printed());
  EXPECT_EQ(object["api_version"], "skerry/v1");
  EXPECT_EQ(object["path"], out + "/step-00000080.png");
  EXPECT_EQ(object["step"], 80);
  EXPECT_EQ(object["experts"],
            Json::parse(text(
                R"([{"index":0,"step":100,"path":")", out, R"(/step-00000080-expert-0.png"},)",
                R"({"index":1,"step":60,"path":")", out, R"(/step-00000080-expert-1.png"}])")));
  EXPECT_EQ(object["drawn"], true);
  EXPECT_TRUE(object["seconds"].is_number());
}

TEST_F(RunPreview, WatchesFromBeforeTheFirstCommitToTheEnd) {
  const pb::ObjectRef second = ensemble.experts(1).checkpoint();
  ensemble.mutable_experts(1)->clear_checkpoint();
  std::size_t before = 0;
  meanwhile({[&] { EXPECT_THAT(around.ran, IsEmpty()); },
             [&] { *ensemble.mutable_experts(1)->mutable_checkpoint() = second; },
             [&] {
               EXPECT_EQ(read("latest.png"), "100 60 ");
               before = chunks_of(1);
             },
             [&] { commit_step(0, 140); },
             [&] {
               EXPECT_EQ(chunks_of(1), before) << "it has not changed, and came again";
               end("done");
             }});
  ASSERT_EQ(preview({"--watch"}), kExitOk) << around.told();
  EXPECT_EQ(around.printed(), text(out, "/step-00000080.png\n", out, "/step-00000100.png\n"));
  EXPECT_EQ(around.told(), "waiting for the first commit of expert 1\n");
  EXPECT_EQ(read("latest.png"), "140 60 ");
  EXPECT_FALSE(fs::exists(out + "/.ensemble"));
  EXPECT_EQ(around.waits, 5);
}

TEST_F(RunPreview, WhatWasCommittedWhileItDrewIsOnePicture) {
  while_drawing = [this, first = true]() mutable {
    if (!std::exchange(first, false)) return;
    commit_step(0, 110);
    commit_step(0, 120);
    commit_step(1, 80);
  };
  meanwhile({[] {}, [&] { end("stopped"); }});
  EXPECT_EQ(preview({"--watch"}), kExitUnhealthy);
  EXPECT_EQ(around.printed(), text(out, "/step-00000080.png\n", out, "/step-00000100.png\n"));
  EXPECT_EQ(around.told(), "fashion stopped\n");
}

TEST_F(RunPreview, ALearnedRouterCountsWhereItIsAsked) {
  for (const std::string route : {"ancestral", "top1"}) {
    commit(*ensemble.mutable_learned_router(), 2, 50);
    meanwhile({[&] { commit(*ensemble.mutable_learned_router(), 2, 80); }, [&] { end("done"); }});
    out = folder / route;
    end("running");
    ASSERT_EQ(preview({"--watch", "--route", route}), kExitOk) << around.told();
    EXPECT_EQ(around.printed(), route == "ancestral" ? out + "/step-00000080.png\n"
                                                     : text(out, "/step-00000070.png\n", out,
                                                            "/step-00000080.png\n"));
  }
}

TEST_F(RunPreview, BearsACoordinatorThatGoesAway) {
  around.coordinator.fetches_before_loss = 10;
  meanwhile({[&] { away = true; },
             [&] {
               away = false;
               around.coordinator.fetches_before_loss = SIZE_MAX;
             },
             [&] { end("done"); }});
  ASSERT_EQ(preview({"--watch"}), kExitOk) << around.told();
  EXPECT_EQ(around.printed(), out + "/step-00000080.png\n");
  EXPECT_THAT(around.told(),
              AllOf(HasSubstr("no picture this time, trying again"),
                    HasSubstr("the coordinator is away"), HasSubstr("the coordinator is back")));
}

TEST_F(RunPreview, GoesOnWhereItWasCutOff) {
  end("done");
  around.coordinator.fetches_before_loss = 30;
  for (const std::vector<std::string>& words : {std::vector<std::string>{}, {"--watch"}}) {
    EXPECT_EQ(preview(words), kExitUnreachable);
    EXPECT_THAT(files(), ElementsAre(".ensemble"));
  }
  EXPECT_EQ(around.waits, 0);
  around.coordinator.fetches_before_loss = SIZE_MAX;
  ASSERT_EQ(preview(), kExitOk) << around.told();
  EXPECT_EQ(chunks_of(0) + chunks_of(1), 2 * checkpoints[0].ema.size());
  EXPECT_FALSE(fs::exists(out + "/.ensemble"));
}

TEST_F(RunPreview, SaysWhatIsLacking) {
  EXPECT_EQ(around({"run", "preview", "fashion"}), kExitUsage);
  EXPECT_EQ(preview({"--label", "circle"}), kExitUsage);
  EXPECT_THAT(around.told(), HasSubstr("the classes are disc, square"));
  EXPECT_FALSE(fs::exists(out));
  std::ofstream(out) << "a file";
  EXPECT_EQ(preview(), kExitNotFound);
  EXPECT_THAT(around.told(), HasSubstr("cannot make the folder " + out));
  fs::remove(out);
  ensemble.mutable_experts(1)->clear_checkpoint();
  EXPECT_EQ(preview(), kExitConflict);
  EXPECT_THAT(around.told(),
              HasSubstr("expert 1 has no checkpoint yet: wait for its first commit"));
  around.coordinator.refuse(pb::AdminRequest::kEnsemble, ErrorCode::kNotFound,
                            "there is no run fashion");
  EXPECT_EQ(preview({"--watch"}), kExitNotFound);
  EXPECT_THAT(around.ran, IsEmpty());
  around.programs.clear();
  around.coordinator.asked.clear();
  EXPECT_EQ(preview({"--watch"}), kExitNotFound);
  EXPECT_EQ(around.told(), "skerry: skerry-engine is not there\n");
  EXPECT_THAT(around.coordinator.asked, IsEmpty());
}

TEST_F(RunPreview, AnEngineThatFailsEndsItWithItsStatus) {
  engine_status = 2;
  EXPECT_EQ(preview({"--watch"}), kExitUsage);
  engine_status = 137;
  EXPECT_EQ(preview({"--experts", "--watch"}), kExitError);
  EXPECT_FALSE(fs::exists(out + "/latest.png"));
  EXPECT_FALSE(fs::exists(out + "/preview.json"));
  EXPECT_EQ(around.waits, 0);
}

TEST_F(RunPreview, PicturesThatWouldNotCompareAreAConflict) {
  ASSERT_EQ(preview({"--guidance", "2"}), kExitOk);
  EXPECT_EQ(preview(), kExitConflict);
  EXPECT_THAT(around.told(), HasSubstr("(guidance 2.0 and not 1.0)"));
  ensemble.mutable_run()->set_id("r-9876543210");  // another run of that name
  EXPECT_EQ(preview({"--guidance", "2"}), kExitConflict);
  EXPECT_THAT(around.told(), HasSubstr("run_id"));
  EXPECT_EQ(around.ran.size(), 1U);
}

TEST_F(RunPreview, OneAtATimeDrawsIntoAFolder) {
  const auto held = storage::lock_folder(out, "");
  ASSERT_TRUE(held.has_value());
  EXPECT_EQ(preview(), kExitConflict);
  EXPECT_THAT(around.told(), HasSubstr("another preview is drawing into"));
}

}  // namespace
}  // namespace skerry::cli
