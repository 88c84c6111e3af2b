// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/text.h"
#include "coordinator/rooms/router_job.h"
#include "coordinator/testing/testing.h"

namespace skerry::coordinator {
namespace {

using testing::Harness;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::Who;

TEST(Dataset, IsUploadedResumedAndReady) {
  Harness harness;
  pb::DatasetAdd content = testing::dataset("data", 3);
  content.set_latents(true);
  const auto add = [&] {
    return harness
        .admin_ask([&](pb::AdminRequest& request) { *request.mutable_dataset_add() = content; })
        .datasets()
        .datasets(0);
  };
  EXPECT_EQ(add().state(), "uploading");
  EXPECT_EQ(harness.fetches.size(), harness.config.fetches_of_dataset);
  EXPECT_EQ(harness.fetches[0].from, harness.admin.id);
  const Fetch first = harness.fetches[0];
  harness.store({first.manifest, first.manifest_bytes, first.bytes, false, {}});
  EXPECT_EQ(add().received_bytes(), 1000U);
  harness.restart();  // and only what is missing is asked for again
  EXPECT_EQ(add().received_bytes(), 1000U);
  harness.store_fetched_files();
  const pb::DatasetInfo ready = add();
  EXPECT_EQ(ready.state(), "ready");
  EXPECT_EQ(ready.partition_samples_size(), 3);
  EXPECT_TRUE(ready.latents());
  harness.restart();
  EXPECT_EQ(add().state(), "ready");
  EXPECT_TRUE(harness.fetches.empty());
}

pb::DatasetAdd weights(const std::string& name) {
  pb::DatasetAdd content = testing::dataset(name, 1);
  content.set_samples(0);
  content.mutable_files()->DeleteSubrange(1, 2);
  content.mutable_files(0)->set_role("weights");
  return content;
}

TEST(Weights, AreHandedToEveryExpertBesideItsShards) {
  Harness harness;
  harness.add_dataset("data", 2);
  const pb::DatasetAdd content = weights("weights-1");
  const auto add = [&](pb::AdminRequest& request) { *request.mutable_dataset_add() = content; };
  harness.admin_ask(add);
  pb::RunSpec spec = testing::run_spec("fashion");
  spec.set_init("weights-1");
  EXPECT_EQ(harness.create_run(spec), "");
  EXPECT_THAT(harness.last_error.message(), HasSubstr("still being uploaded"));
  harness.store_fetched_files();
  EXPECT_EQ(harness.admin_ask(add).datasets().datasets(0).state(), "ready");
  ASSERT_NE(harness.create_run(spec), "") << harness.last_error.message();
  const Who node = harness.join("anna");
  const pb::SlotAssignment slot = harness.assignment(node).slots(0);
  ASSERT_EQ(slot.shards_size(), 2);
  EXPECT_EQ(slot.shards(1).manifest(), content.files(0).object().manifest());
  const Hash manifest = *Hash::from_raw(content.files(0).object().manifest());
  EXPECT_TRUE(harness.core().may_read(node.id, manifest));
  const auto remove = [](pb::AdminRequest& request) {
    request.mutable_dataset_delete()->set_name("weights-1");
  };
  harness.admin_ask(remove);
  EXPECT_THAT(harness.last_error.message(), HasSubstr("run fashion uses dataset weights-1"));
  harness.restart();
  EXPECT_EQ(harness.run("fashion").spec().init(), "weights-1");
  harness.create_run(testing::run_spec("plain"));
  harness.admin_ask(
      [](pb::AdminRequest& request) { request.mutable_run_stop()->set_name("fashion"); });
  harness.admin_ask(
      [](pb::AdminRequest& request) { request.mutable_run_delete()->set_name("fashion"); });
  harness.admin_ask(remove);
  EXPECT_EQ(harness.last_error.code(), "") << harness.last_error.message();
  EXPECT_FALSE(harness.core().may_read(node.id, manifest));
}

TEST(Weights, AreNoImagesAndImagesAreNoWeights) {
  Harness harness;
  harness.add_dataset("data", 1);
  pb::DatasetAdd two = weights("weights-1");
  *two.add_files() = two.files(0);
  harness.admin_ask([&](pb::AdminRequest& request) { *request.mutable_dataset_add() = two; });
  EXPECT_THAT(harness.last_error.message(), HasSubstr("weights are one file"));
  harness.admin_ask(
      [](pb::AdminRequest& request) { *request.mutable_dataset_add() = weights("weights-1"); });
  harness.store_fetched_files();
  pb::RunSpec spec = testing::run_spec("fashion");
  spec.set_dataset("weights-1");
  harness.create_run(spec);
  EXPECT_THAT(harness.last_error.message(), HasSubstr("holds weights, no images"));
  spec.set_dataset("data");
  for (const char* init : {"data", "none"}) {
    spec.set_init(init);
    harness.create_run(spec);
    EXPECT_THAT(harness.last_error.message(), HasSubstr(text("no weights ", init, " are here")));
  }
  pb::DatasetAdd empty = testing::dataset("empty", 1);
  empty.set_samples(0);
  harness.admin_ask([&](pb::AdminRequest& request) { *request.mutable_dataset_add() = empty; });
  EXPECT_THAT(harness.last_error.message(), HasSubstr("no samples"));
}

TEST(Dataset, OtherContentUnderTheSameNameIsAConflict) {
  Harness harness;
  harness.add_dataset("data", 2);
  pb::DatasetAdd other = testing::dataset("data", 3);
  harness.admin_ask([&](pb::AdminRequest& request) { *request.mutable_dataset_add() = other; });
  EXPECT_EQ(harness.last_error.code(), "conflict");
  other.set_name("more");
  other.mutable_files()->RemoveLast();
  harness.admin_ask([&](pb::AdminRequest& request) { *request.mutable_dataset_add() = other; });
  EXPECT_THAT(harness.last_error.message(), HasSubstr("partition 2 has no statistics"));
}

TEST(Dataset, IsDeletedOnlyWhenNoRunUsesIt) {
  Harness harness;
  harness.create_run("fashion", 1);
  const auto remove = [](pb::AdminRequest& request) {
    request.mutable_dataset_delete()->set_name("data");
  };
  harness.admin_ask(remove);
  EXPECT_THAT(harness.last_error.message(), HasSubstr("run fashion uses dataset data"));
  harness.admin_ask(
      [](pb::AdminRequest& request) { request.mutable_run_stop()->set_name("fashion"); });
  harness.admin_ask(
      [](pb::AdminRequest& request) { request.mutable_run_delete()->set_name("fashion"); });
  harness.admin_ask(remove);
  EXPECT_TRUE(harness.last_error.code().empty());
  EXPECT_EQ(harness.dropped.size(), 3U);
  harness.restart();
  EXPECT_TRUE(harness.core().objects().empty());
}

void add_data(pb::AdminRequest& request) {
  *request.mutable_dataset_add() = testing::dataset("data", 1);
}
void delete_data(pb::AdminRequest& request) { request.mutable_dataset_delete()->set_name("data"); }

TEST(Dataset, AddedAgainWhileItsDeletionWaitsForTheDiskKeepsItsFiles) {
  Harness harness;
  harness.admin_ask(add_data);
  harness.store_fetched_files();
  harness.disk_stalls = true;
  harness.admin_say(delete_data);
  EXPECT_TRUE(harness.dropped.empty()) << "durable state still names them";
  harness.admin_say(add_data);
  harness.store_fetched_files();  // all are still on the disk
  harness.disk_stalls = false;
  harness.persist();
  EXPECT_TRUE(harness.dropped.empty());
  harness.restart();
  EXPECT_EQ(harness.admin_ask(add_data).datasets().datasets(0).state(), "ready");
  EXPECT_EQ(harness.core().objects().size(), 3U);
}

TEST(Dataset, DeletedTwiceWhileTheDiskStallsKeepsItsFilesUntilTheSecondIsDurable) {
  Harness harness;
  harness.admin_ask(add_data);
  harness.store_fetched_files();
  harness.disk_stalls = true;
  harness.admin_say(delete_data);
  const std::uint64_t first = harness.core().last_batch();
  harness.admin_say(add_data);
  harness.store_fetched_files();
  harness.admin_say(delete_data);
  harness.step(Persisted{first});
  EXPECT_TRUE(harness.dropped.empty()) << "the next batch names them again";
  harness.disk_stalls = false;
  harness.persist();
  EXPECT_EQ(harness.dropped.size(), 3U);
}

// A cancelled fetch removes what is here of its object; the durable state still
// says that it is here.
TEST(Dataset, DeletedWhileItIsRepairedKeepsItsFilesUntilThatIsDurable) {
  Harness harness;
  harness.admin_ask(add_data);
  harness.store_fetched_files();
  const Hash damaged = harness.objects.begin()->first;
  harness.objects.erase(damaged);
  harness.step(ObjectDamaged{damaged});
  harness.admin_ask(add_data);
  ASSERT_EQ(harness.fetches.size(), 1U);
  harness.disk_stalls = true;
  harness.admin_say(delete_data);
  EXPECT_THAT(harness.cancelled, ::testing::IsEmpty());
  EXPECT_THAT(harness.dropped, ::testing::IsEmpty());
  harness.disk_stalls = false;
  harness.persist();
  EXPECT_THAT(harness.cancelled, ::testing::IsEmpty());
  EXPECT_EQ(harness.dropped.size(), 3U);
}

std::string why(Harness& harness) {
  const auto reply = harness.admin_ask(
      [](pb::AdminRequest& request) { request.mutable_run_why()->set_name("fashion"); });
  std::string all;
  for (const std::string& reason : reply.why().reasons()) all += reason + "\n";
  return all;
}

TEST(Dataset, ADeletedOneLeavesWhatAnotherUploads) {
  Harness harness;
  const auto add = [&](const std::string& name) {
    pb::AdminRequest request;
    *request.mutable_dataset_add() = testing::dataset(name, 1);
    request.mutable_dataset_add()->mutable_files(0)->mutable_object()->set_manifest(
        blake2b("shared").raw());
    harness.admin_ask(request);
  };
  add("first");
  add("second");
  harness.admin_ask(
      [](pb::AdminRequest& request) { request.mutable_dataset_delete()->set_name("first"); });
  EXPECT_THAT(harness.dropped, ::testing::SizeIs(2)) << "its shard and statistics";
  for (const Drop& dropped : harness.dropped) {
    EXPECT_NE(dropped.manifest, blake2b("shared"));
    std::erase_if(harness.fetches,
                  [&](const Fetch& fetch) { return fetch.manifest == dropped.manifest; });
  }
  harness.store_fetched_files();
  EXPECT_EQ(harness.events("dataset_ready").size(), 1U);
  harness.admin_ask(
      [](pb::AdminRequest& request) { request.mutable_dataset_delete()->set_name("second"); });
  EXPECT_THAT(harness.dropped,
              ::testing::Contains(::testing::Field(&Drop::manifest, blake2b("shared"))));
}

TEST(Damage, OfAShardIsToldWithItsRunAndMendedByTheSameDatasetAgain) {
  Harness harness;
  harness.create_run("fashion", 2);
  const pb::DatasetAdd content = testing::dataset("data", 2);
  const auto add = [&] {
    return harness
        .admin_ask([&](pb::AdminRequest& request) { *request.mutable_dataset_add() = content; })
        .datasets()
        .datasets(0)
        .state();
  };
  const auto state = [&] {
    return harness.admin_ask([](pb::AdminRequest& request) { request.mutable_dataset_list(); })
        .datasets()
        .datasets(0)
        .state();
  };
  const pb::ObjectRef& shard = content.files(3).object();
  ASSERT_EQ(shard.name(), "shard-1-0.safetensors");
  const ObjectDamaged damaged{*Hash::from_raw(shard.manifest())};
  for (int i = 0; i < 2; ++i) harness.step(damaged);
  const auto told = harness.events("object_damaged");
  ASSERT_EQ(told.size(), 1U);
  EXPECT_EQ(told[0].run(), "fashion");
  EXPECT_EQ(told[0].expert(), 1);
  EXPECT_THAT(told[0].reason(), HasSubstr("shard-1-0.safetensors of dataset data"));
  EXPECT_THAT(why(harness),
              HasSubstr("expert 1: the file shard-1-0.safetensors of dataset data is damaged"));
  EXPECT_THAT(why(harness), HasSubstr("`skerry dataset add data` of the same images repairs it"));
  EXPECT_EQ(state(), "damaged");

  EXPECT_EQ(add(), "uploading");
  ASSERT_EQ(harness.fetches.size(), 1U);
  EXPECT_EQ(harness.fetches[0].manifest, damaged.manifest);
  harness.store_fetched_files();
  EXPECT_EQ(state(), "ready");
  EXPECT_EQ(harness.events("object_mended").size(), 1U);
  EXPECT_THAT(why(harness), ::testing::Not(HasSubstr("damaged")));
  harness.step(damaged);  // once more
  EXPECT_EQ(harness.events("object_damaged").size(), 2U);
}

TEST(Damage, OfACheckpointNamesItsExpertAndStep) {
  Harness harness;
  Who node = harness.join("n1");
  harness.create_run("fashion", 1);
  harness.commit_round(node);
  const Hash head = *harness.core().experts()[0].head;
  harness.step(ObjectDamaged{head});
  harness.step(ObjectDamaged{blake2b("nobody's")});
  const auto told = harness.events("object_damaged");
  ASSERT_EQ(told.size(), 1U);
  EXPECT_EQ(told[0].expert(), 0);
  EXPECT_EQ(told[0].step(), 10U);
  EXPECT_THAT(why(harness), HasSubstr("expert 0: the checkpoint of step 10 is damaged"));
  EXPECT_EQ(harness.commit_round(node).status(), pb::COMMIT_ACCEPTED);  // its holder has it
}

TEST(Run, IsValidatedAgainstTheDataset) {
  Harness harness;
  harness.add_dataset("data", 2);
  const auto error = [&](auto change) {
    pb::RunSpec spec = testing::run_spec("fashion");
    change(spec);
    harness.create_run(spec);
    return harness.last_error.message();
  };
  EXPECT_THAT(error([](pb::RunSpec& spec) { spec.set_dataset("other"); }),
              HasSubstr("no dataset other"));
  EXPECT_THAT(error([](pb::RunSpec& spec) { spec.set_preset("M/2"); }),
              HasSubstr("not one of S, B, L, XL"));
  EXPECT_THAT(error([](pb::RunSpec& spec) { spec.set_preset("S/8"); }),
              HasSubstr("must divide the image size"));
  EXPECT_THAT(error([](pb::RunSpec& spec) { spec.set_width(64); }), HasSubstr("not both"));
  EXPECT_THAT(error([](pb::RunSpec& spec) { spec.mutable_train()->set_precision("fp16"); }),
              HasSubstr("use \"fp32\" or \"bf16\""));
  EXPECT_THAT(
      error([](pb::RunSpec& spec) { spec.mutable_train()->set_schedule(pb::SCHEDULE_CYCLIC); }),
      HasSubstr("needs train.cycle_steps"));
  EXPECT_THAT(error([](pb::RunSpec& spec) { spec.set_router_kind("best"); }),
              HasSubstr("use \"analytic\" or \"learned\""));
  EXPECT_THAT(error([](pb::RunSpec& spec) { spec.mutable_train()->set_steps(0); }),
              HasSubstr("train.steps"));
  EXPECT_THAT(error([](pb::RunSpec& spec) { spec.set_copies(17); }),
              HasSubstr("checkpoint.copies must be 1 to 16"));
  EXPECT_TRUE(harness.core().experts().empty());
  EXPECT_EQ(error([](pb::RunSpec& spec) {
              spec.clear_preset();
              spec.set_width(64);
              spec.set_depth(2);
              spec.set_heads(4);
              spec.set_patch_size(4);
            }),
            "");
  EXPECT_EQ(harness.core().experts().size(), 2U);
}

TEST(RouterJob, IsOneMoreJobThatReadsEveryPartition) {
  Harness harness;
  harness.add_dataset("data", 2);
  pb::RunSpec spec = testing::run_spec("fashion", 10);
  spec.set_router_kind("learned");
  spec.mutable_train()->set_t_distribution(pb::TIME_DISTRIBUTION_LOGNORMAL);
  ASSERT_NE(harness.create_run(spec), "") << harness.last_error.message();
  EXPECT_THAT(harness.events("run_created").back().reason(), HasSubstr("2 experts and a router"));
  EXPECT_THAT(why(harness), HasSubstr("the router: "));
  const Who node = harness.join("anna", 3);
  const pb::Assignment assignment = harness.assignment(node);
  ASSERT_EQ(assignment.slots_size(), 3);
  for (const pb::SlotAssignment& slot : assignment.slots()) {
    if (slot.expert() == 2) continue;
    EXPECT_EQ(slot.model().router_experts(), 0U);
    EXPECT_EQ(slot.partitions_size(), 0);
    EXPECT_EQ(slot.shards_size(), 1);
    EXPECT_EQ(slot.spec().train().batch_size(), 64U);
  }
  const auto router =
      std::ranges::find(assignment.slots(), 2U, [](const auto& slot) { return slot.expert(); });
  ASSERT_NE(router, assignment.slots().end());
  EXPECT_EQ(router->model().router_experts(), 2U);
  EXPECT_EQ(router->model().width(), 192U);
  EXPECT_EQ(router->spec().train().t_distribution(), pb::TIME_DISTRIBUTION_UNIFORM);
  ASSERT_EQ(router->shards_size(), 2);
  ASSERT_EQ(router->partitions_size(), 2);
  EXPECT_EQ(router->shards(1).name(), "shard-1-0.safetensors");
  EXPECT_EQ(router->partitions(1), 1U);

  ASSERT_EQ(harness.commit(node, testing::next_commit(*router)).status(), pb::COMMIT_ACCEPTED);
  EXPECT_EQ(harness.run("fashion").state(), "running");
  const auto ensemble = harness
                            .admin_ask([](pb::AdminRequest& request) {
                              request.mutable_ensemble()->set_name("fashion");
                            })
                            .ensemble();
  EXPECT_EQ(ensemble.experts_size(), 2);
  EXPECT_EQ(ensemble.learned_router().step(), 10U);
  EXPECT_EQ(ensemble.learned_router().checkpoint().manifest(),
            testing::next_commit(*router).manifest().manifest());
  EXPECT_TRUE(harness.run("fashion").experts(2).router());
  EXPECT_EQ(harness.run("fashion").experts(2).gradient_norm(), 1);
  EXPECT_EQ(harness.core().run_facts().at(0).experts.at(0).statistics().manifest(), "");
  harness.restart();
  EXPECT_EQ(harness.run("fashion").experts_size(), 3);

  harness.add_dataset("one", 1);
  spec.set_name("alone");
  spec.set_dataset("one");
  harness.create_run(spec);
  EXPECT_THAT(harness.last_error.message(), HasSubstr("two or more partitions"));
}

// Two partitions, whose captions have 24 numbers a token.
pb::DatasetAdd with_captions(const std::string& name) {
  pb::DatasetAdd content = testing::dataset(name, 2);
  content.set_caption_dim(24);
  content.set_caption_tokens(9);
  for (const int k : {0, 1, -1}) {
    const std::string file = k < 0 ? "captions-fit.safetensors" : text("captions-", k, "-0");
    pb::DatasetFile& added = *content.add_files();
    added = content.files(0);
    added.mutable_object()->set_name(file);
    added.mutable_object()->set_manifest(blake2b(name + file).raw());
    added.set_role("captions");
    added.set_partition(k);
  }
  return content;
}

TEST(Captions, MakeAPixartThatTrainsWithThemAndARouterWithout) {
  Harness harness;
  harness.admin_ask(
      [](pb::AdminRequest& request) { *request.mutable_dataset_add() = with_captions("data"); });
  harness.store_fetched_files();
  pb::RunSpec spec = testing::run_spec("birds", 10);
  spec.set_router_kind("learned");
  ASSERT_NE(harness.create_run(spec), "") << harness.last_error.message();
  const Who node = harness.join("anna", 3);
  const pb::Assignment assignment = harness.assignment(node);
  ASSERT_EQ(assignment.slots_size(), 3);
  for (const pb::SlotAssignment& slot : assignment.slots()) {
    const bool is_router = slot.expert() == 2;
    EXPECT_EQ(slot.model().caption_dim(), is_router ? 0U : 24U);
    EXPECT_EQ(slot.model().caption_tokens(), is_router ? 0U : 9U);
    ASSERT_EQ(slot.shards_size(), 2);
    EXPECT_EQ(slot.partitions_size(), is_router ? 2 : 0);
    EXPECT_EQ(slot.shards(1).name(),
              is_router ? "shard-1-0.safetensors" : text("captions-", slot.expert(), "-0"));
  }
}

TEST(Captions, TrainOnNoNodeThatDoesNotKnowThem) {
  Harness harness;
  harness.admin_ask(
      [](pb::AdminRequest& request) { *request.mutable_dataset_add() = with_captions("data"); });
  harness.store_fetched_files();
  pb::RunSpec spec = testing::run_spec("birds", 10);
  spec.set_router_kind("learned");  // which reads no captions
  Who old = harness.join("old", 2);
  const auto say_hello = [&](std::uint32_t minor) {
    old.connection += "+";
    pb::ControlRequest request;
    auto& hello = *request.mutable_hello();
    hello.mutable_version()->set_major(protocol::kVersionMajor);
    hello.mutable_version()->set_minor(minor);
    hello.set_incarnation(old.incarnation);
    for (std::uint32_t slot = 0; slot < 2; ++slot) hello.add_slots()->set_index(slot);
    ASSERT_FALSE(harness.ask(old, request).has_error());
  };
  const auto why = [&] {
    std::string all;
    const pb::AdminReply reply = harness.admin_ask(
        [](pb::AdminRequest& request) { request.mutable_run_why()->set_name("birds"); });
    for (const std::string& reason : reply.why().reasons()) all += reason + "\n";
    return all;
  };
  say_hello(protocol::kMinorOfCaptions - 1);
  ASSERT_NE(harness.create_run(spec), "") << harness.last_error.message();
  const pb::Assignment of_old = harness.assignment(old);
  ASSERT_EQ(of_old.slots_size(), 1);
  EXPECT_EQ(of_old.slots(0).expert(), 2U);
  const std::string expected =
      text("for its captions, a daemon of protocol 1.", protocol::kMinorOfCaptions, " or newer");
  EXPECT_THAT(why(), HasSubstr(expected));

  say_hello(protocol::kMinorOfCaptions);  // upgraded
  EXPECT_EQ(harness.assignment(old).slots_size(), 2);
  EXPECT_THAT(why(), Not(HasSubstr(expected)));
}

TEST(Captions, AreLeftAloneByADitAndMissedByAPixart) {
  Harness harness;
  harness.admin_ask(
      [](pb::AdminRequest& request) { *request.mutable_dataset_add() = with_captions("data"); });
  harness.store_fetched_files();
  pb::RunSpec spec = testing::run_spec("birds", 10);
  spec.set_architecture("dit");
  ASSERT_NE(harness.create_run(spec), "") << harness.last_error.message();
  const pb::Assignment assignment = harness.assignment(harness.join("anna", 2));
  ASSERT_EQ(assignment.slots_size(), 2);
  EXPECT_EQ(assignment.slots(0).model().caption_dim(), 0U);
  EXPECT_EQ(assignment.slots(0).shards_size(), 1);

  harness.add_dataset("plain", 2);
  spec.set_name("blind");
  spec.set_dataset("plain");
  spec.set_architecture("pixart");
  EXPECT_EQ(harness.create_run(spec), "");
  EXPECT_THAT(harness.last_error.message(), HasSubstr("the dataset plain has none"));
  spec.set_architecture("unet");
  EXPECT_EQ(harness.create_run(spec), "");
  EXPECT_THAT(harness.last_error.message(), HasSubstr("dit"));
}

TEST(RouterJob, ItsCheckpointStaysWhileSomebodyFetchesTheEnsemble) {
  Harness harness;
  harness.add_dataset("data", 2);
  pb::RunSpec spec = testing::run_spec("fashion", 100);
  spec.set_router_kind("learned");
  harness.create_run(spec);
  const Who node = harness.join("anna", 3);
  const auto commit = [&] {
    const pb::Assignment assignment = harness.assignment(node);
    const auto router =
        std::ranges::find(assignment.slots(), 2U, [](const auto& slot) { return slot.expert(); });
    EXPECT_EQ(harness.commit(node, testing::next_commit(*router)).status(), pb::COMMIT_ACCEPTED);
  };
  commit();
  harness.admin_ask(
      [](pb::AdminRequest& request) { request.mutable_ensemble()->set_name("fashion"); });
  for (int i = 0; i < 3; ++i) commit();
  EXPECT_EQ(harness.dropped.size(), 1U)
      << "of four the last two are kept, and the one that is being fetched";
}

// Multiply-adds of the large products, counted layer by layer.
double work_of(const pb::ModelSpec& model, double samples) {
  const double w = model.width(), side = model.image_size() / model.patch_size();
  const double tokens = side * side + (model.router_experts() > 0 ? 1 : 0);
  const double attention = 4 * tokens * w * w + 2 * tokens * tokens * w, mlp = 8 * tokens * w * w;
  return samples * model.depth() * (attention + mlp + 6 * w * w);
}

TEST(RouterJob, GetsFourPercentOfTheWork) {
  for (const auto& [width, heads] : {std::pair{1152U, 16U}, {384U, 6U}, {96U, 3U}, {64U, 1U}}) {
    for (const std::uint32_t experts : {2U, 8U, 64U}) {
      pb::ModelSpec model;
      model.set_image_size(32);
      model.set_channels(4);
      model.set_patch_size(2);
      model.set_width(width);
      model.set_heads(heads);
      model.set_depth(12);
      pb::TrainSpec train;
      train.set_batch_size(32);
      const double theirs = work_of(model, 32) * experts;
      const pb::ModelSpec router = router_model(model, experts);
      const double its = work_of(router, router_training(train, model, experts).batch_size());
      EXPECT_GE(its / (its + theirs), 0.0395) << width << ' ' << experts;
      EXPECT_LE(its / (its + theirs), 0.06)
          << width << ' ' << experts;  // one sample more than needed
      EXPECT_EQ(router.width() % router.heads(), 0U);
      EXPECT_EQ(router.width() % 4, 0U);
    }
  }
}

TEST(Run, ADryRunChangesNothing) {
  Harness harness;
  harness.add_dataset("data", 2);
  const auto disk = harness.disk;
  const auto reply = harness.admin_ask([](pb::AdminRequest& request) {
    *request.mutable_run_create()->mutable_spec() = testing::run_spec("fashion");
    request.mutable_run_create()->set_dry_run(true);
  });
  ASSERT_EQ(reply.runs().runs_size(), 1);
  EXPECT_EQ(reply.runs().runs(0).experts_size(), 2);
  EXPECT_EQ(harness.disk, disk);
}

TEST(Run, CreatedTwiceIsOneAndAnotherOfItsNameAConflict) {
  Harness harness;
  const std::string id = harness.create_run("fashion", 1);
  const auto again = harness.admin_ask([](pb::AdminRequest& request) {
    *request.mutable_run_create()->mutable_spec() = testing::run_spec("fashion");
  });
  EXPECT_EQ(again.runs().runs(0).id(), id);
  EXPECT_TRUE(again.runs().existed());
  harness.create_run(testing::run_spec("fashion", 999));
  EXPECT_EQ(harness.last_error.code(), "conflict");
  EXPECT_EQ(harness.run(id).name(), "fashion");
}

TEST(Run, GoesThroughItsStates) {
  Harness harness;
  harness.create_run("fashion", 1, 30);
  EXPECT_EQ(harness.run("fashion").state(), "waiting");
  Who node = harness.join("n1");
  EXPECT_EQ(harness.run("fashion").state(), "running");
  harness.commit_round(node);
  const auto ask = [&](auto set) {
    harness.admin_ask([&](pb::AdminRequest& request) { set(request); });
    return harness.last_error.code();
  };
  const auto pause = [](pb::AdminRequest& request) {
    request.mutable_run_pause()->set_name("fashion");
  };
  const auto resume = [](pb::AdminRequest& request) {
    request.mutable_run_resume()->set_name("fashion");
  };
  const auto stop = [](pb::AdminRequest& request) {
    request.mutable_run_stop()->set_name("fashion");
  };
  const auto remove = [](pb::AdminRequest& request) {
    request.mutable_run_delete()->set_name("fashion");
  };
  const auto extend = [](pb::AdminRequest& request) {
    request.mutable_run_extend()->set_run("fashion");
    request.mutable_run_extend()->set_steps(50);
  };
  EXPECT_EQ(ask(remove), "conflict");
  EXPECT_EQ(ask(pause), "");
  EXPECT_EQ(harness.run("fashion").state(), "paused");
  harness.commit_round(node);
  harness.return_lease(node, "turn over");
  EXPECT_FALSE(harness.core().experts()[0].lease);
  harness.restart();
  harness.reconnect(node);
  EXPECT_EQ(harness.run("fashion").state(), "paused");
  EXPECT_EQ(ask(resume), "");
  EXPECT_EQ(harness.run("fashion").state(), "running");
  harness.commit_round(node);
  EXPECT_EQ(harness.run("fashion").state(), "done");
  EXPECT_EQ(harness.run("fashion").eta_seconds(), 0);
  EXPECT_EQ(ask(stop), "conflict");
  EXPECT_EQ(ask(extend), "");
  EXPECT_EQ(harness.run("fashion").state(), "running");
  EXPECT_EQ(harness.assignment(node).slots(0).steps_target(), 50U);
  EXPECT_EQ(harness.assignment(node).slots(0).head_step(), 30U);
  EXPECT_EQ(ask(stop), "");
  EXPECT_EQ(harness.run("fashion").state(), "stopped");
  EXPECT_EQ(harness.assignment(node).slots_size(), 0);
  EXPECT_EQ(ask(resume), "conflict");
  const auto ensemble = harness
                            .admin_ask([](pb::AdminRequest& request) {
                              request.mutable_ensemble()->set_name("fashion");
                            })
                            .ensemble();
  EXPECT_EQ(ensemble.experts(0).step(), 30U);
  EXPECT_EQ(ensemble.router_size(), 2);
  EXPECT_EQ(ask(remove), "");
  EXPECT_TRUE(harness.core().experts().empty());
  std::vector<std::string> states;
  for (const pb::Event& event : harness.events("run_state"))
    states.push_back(event.reason().substr(0, event.reason().find(':')));
  EXPECT_EQ(states, (std::vector<std::string>{"waiting", "running", "paused", "running", "done",
                                              "running", "stopped"}));
}

// Removed while it trains: what it has is committed, the lease goes back, and
// the run ends without it. Added again after the end: it goes on from where it
// was.
TEST(Run, AnExpertLeavesAndJoins) {
  Harness harness;
  Who one = harness.join("n1"), two = harness.join("n2");
  harness.create_run("fashion", 2, 20);
  const auto change = [&](std::uint32_t expert, bool add) {
    harness.admin_ask([&](pb::AdminRequest& request) {
      request.mutable_run_expert()->set_run("fashion");
      request.mutable_run_expert()->set_expert(expert);
      request.mutable_run_expert()->set_add(add);
    });
    return harness.last_error.code();
  };
  const auto ensemble = [&] {
    return harness
        .admin_ask(
            [](pb::AdminRequest& request) { request.mutable_ensemble()->set_name("fashion"); })
        .ensemble();
  };
  Who& leaver = held_by(harness, one, 1) ? one : two;
  Who& other = &leaver == &one ? two : one;
  harness.commit_round(leaver);
  EXPECT_EQ(change(2, false), "not_found");
  EXPECT_EQ(change(1, false), "");
  EXPECT_EQ(change(1, false), "");          // it is so already
  EXPECT_EQ(change(0, false), "conflict");  // the last one
  EXPECT_TRUE(harness.assignment(leaver).slots(0).yield_after_commit());
  harness.return_lease(leaver, "asked back");
  const pb::RunInfo without = harness.run("fashion");
  EXPECT_EQ(without.experts(1).phase(), "removed");
  EXPECT_TRUE(without.experts(1).removed());
  EXPECT_EQ(without.steps_target(), 20U);
  EXPECT_EQ(ensemble().experts_size(), 1);
  EXPECT_EQ(ensemble().router_size(), 2);  // what all share, and the one partition

  harness.restart();
  for (Who* node : {&one, &two}) harness.reconnect(*node);
  EXPECT_EQ(harness.run("fashion").experts(1).phase(), "removed");
  while (harness.run("fashion").state() != "done") harness.commit_round(other);
  EXPECT_EQ(harness.core().experts()[1].head_step, 10U);

  EXPECT_EQ(change(1, true), "");
  const pb::RunInfo with = harness.run("fashion");
  EXPECT_EQ(with.state(), "running");
  EXPECT_EQ(with.steps_target(), 40U);
  EXPECT_EQ(ensemble().experts_size(), 2);
  EXPECT_EQ(ensemble().experts(1).step(), 10U);
  EXPECT_EQ(ensemble().router_size(), 3);
  EXPECT_EQ(harness.events("expert_removed").size(), 1U);
  EXPECT_EQ(harness.events("expert_added").size(), 1U);
  EXPECT_EQ(change(1, false), "");  // what is left has reached its target
  EXPECT_EQ(harness.run("fashion").state(), "done");
}

TEST(Run, ShowsWhatIsTrainedNow) {
  Harness harness;
  Who node = harness.join("n1");
  const std::string id = harness.create_run("fashion", 1, 100);
  pb::ControlRequest beat;
  auto& said = *beat.mutable_heartbeat();
  said.set_incarnation(node.incarnation);
  said.set_sequence(++node.sequence);
  auto& status = *said.add_slots();
  status.set_run(id);
  status.set_epoch(harness.assignment(node).slots(0).epoch());
  status.set_phase(pb::SLOT_TRAINING);
  status.set_step(50);
  status.set_samples_per_second(640);
  harness.ask(node, beat);
  const pb::RunInfo info = harness.run("fashion");
  EXPECT_EQ(info.experts(0).live_step(), 50U);
  EXPECT_EQ(info.experts(0).phase(), "training");
  EXPECT_EQ(info.experts(0).node(), "n1");
  EXPECT_DOUBLE_EQ(info.samples_per_second(), 640);
  EXPECT_DOUBLE_EQ(info.eta_seconds(), 5);  // 50 steps of 64 samples

  // A node may say any number that is finite; what people read stays so.
  said.set_sequence(++node.sequence);
  said.mutable_slots(0)->set_samples_per_second(std::numeric_limits<double>::denorm_min());
  harness.ask(node, beat);
  EXPECT_TRUE(std::isfinite(harness.run("fashion").eta_seconds()));
}

TEST(Run, ForeseesItsEndWithThoseThatStillStart) {
  Harness harness;
  Who one = harness.join("n1");
  Who two = harness.join("n2");
  const std::string id = harness.create_run("fashion", 2, 100);
  const auto beats = [&](Who& node, pb::SlotPhase phase, double rate) {
    pb::ControlRequest beat;
    auto& said = *beat.mutable_heartbeat();
    said.set_incarnation(node.incarnation);
    said.set_sequence(++node.sequence);
    auto& status = *said.add_slots();
    const pb::SlotAssignment held = harness.assignment(node).slots(0);
    status.set_run(id);
    status.set_expert(held.expert());
    status.set_epoch(held.epoch());
    status.set_phase(phase);
    status.set_samples_per_second(rate);
    harness.ask(node, beat);
    return held.expert();
  };
  EXPECT_EQ(harness.run("fashion").experts(0).phase(), "granted");
  EXPECT_EQ(harness.run("fashion").eta_seconds(), -1);  // nobody knows yet
  beats(one, pb::SLOT_TRAINING, 640);
  const int starting = static_cast<int>(beats(two, pb::SLOT_STARTING, 0));
  const pb::RunInfo info = harness.run("fashion");
  EXPECT_EQ(info.experts(starting).phase(), "starting");
  EXPECT_DOUBLE_EQ(info.samples_per_second(), 640);
  EXPECT_DOUBLE_EQ(info.eta_seconds(), 10);  // 100 steps of 64 samples each, two at a time
}

TEST(Events, AreBoundedAndSurvive) {
  Harness harness;
  harness.config.events = 10;
  Who node = harness.join("n1");
  harness.create_run("fashion", 1, 1000);
  for (int i = 0; i < 20; ++i) harness.commit_round(node);
  const auto before = harness.events();
  EXPECT_EQ(before.size(), 10U);
  harness.restart();
  const auto after = harness.events();
  EXPECT_EQ(after.size(), 10U);
  EXPECT_EQ(after.back().kind(), "coordinator_started");
  EXPECT_EQ(after.back().number(), before.back().number() + 1);
}

TEST(Config, ItsRelationsAreChecked) {
  Config config;
  EXPECT_TRUE(config.check());
  config.lease = std::chrono::seconds(2);
  EXPECT_THAT(config.check().error().message, HasSubstr("at least three heartbeats"));
}

}  // namespace
}  // namespace skerry::coordinator
