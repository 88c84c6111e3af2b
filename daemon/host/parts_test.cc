// SPDX-License-Identifier: Apache-2.0
// The parts around the core: checkpoints from shared memory and back, the data
// folder, options, devices.
#include <gmock/gmock.h>
#include <sys/mman.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>

#include "base/temp_folder.h"
#include "base/text.h"
#include "daemon/host/data_folder.h"
#include "daemon/host/devices.h"
#include "daemon/host/object_jobs.h"
#include "daemon/host/options.h"
#include "daemon/host/supervisor.h"
#include "protocol/validate.h"
#include "storage/files.h"
#include "storage/testing/memory_store.h"
#include "tests/fake_engine/chain.h"

namespace skerry::daemon {
namespace {

using testing::AllOf;
using testing::HasSubstr;

struct Objects {
  TempFolder folder;
  storage::MemoryStore store;
  std::unique_ptr<storage::ObjectStore> objects =
      storage::ObjectStore::open(store, folder / "files", storage::Checkpoints::kAsFiles).value();

  Result<pb::ObjectRef> store_chain(const fake::Chain& chain) {
    const std::string bytes = chain.encode(300).value();
    SharedSnapshot snapshot{UniqueFd(::memfd_create("snapshot", MFD_CLOEXEC)), bytes.size()};
    EXPECT_TRUE(storage::write_all(snapshot.memory.get(), bytes, "snapshot").has_value());
    return store_snapshot(
        *objects,
        {.run = "r-0000000001", .expert = 2, .epoch = 9, .attempt = 1, .step = chain.step},
        snapshot);
  }
};

TEST(Checkpoints, ASnapshotComesBackByteForByte) {
  Objects disk;
  fake::Chain chain = fake::Chain::start(1, 2);
  chain.advance(1);
  const auto ref = disk.store_chain(chain).value();
  const Hash name = Hash::from_raw(ref.manifest()).value();
  const auto manifest = disk.objects->manifest(name).value().manifest;
  EXPECT_EQ(manifest.epoch, Epoch(9));
  EXPECT_EQ(manifest.step, 1U);
  const auto facts = checkpoint_facts(disk.objects->info(name).value());
  ASSERT_TRUE(facts.has_value());
  EXPECT_EQ(facts->expert, (ExpertId{RunId("r-0000000001"), 2}));
  EXPECT_EQ(facts->step, 1U);
  const auto resume = open_resume(*disk.objects, name).value();
  const auto file =
      storage::MappedFile::map(resume.file->descriptor(), resume.bytes, "resume").value();
  EXPECT_EQ(file.bytes(), chain.encode(300).value());
}

TEST(Checkpoints, WhatIsNoSafetensorsIsRefused) {
  Objects disk;
  SharedSnapshot snapshot{UniqueFd(::memfd_create("snapshot", MFD_CLOEXEC)), 9};
  ASSERT_TRUE(storage::write_all(snapshot.memory.get(), "nonsense!", "snapshot").has_value());
  EXPECT_FALSE(store_snapshot(*disk.objects, {.run = "r-0000000001"}, snapshot).has_value());
}

TEST(Checkpoints, AnAbsentOneIsNotFound) {
  Objects disk;
  EXPECT_EQ(open_resume(*disk.objects, blake2b("absent")).error().code, ErrorCode::kNotFound);
  EXPECT_FALSE(is_whole(*disk.objects, blake2b("absent"), true).value());
}

TEST(Folder, ASecondDaemonIsTurnedAway) {
  TempFolder folder;
  const auto first = DataFolder::claim(folder / "data");
  ASSERT_TRUE(first.has_value());
  const auto second = DataFolder::claim(folder / "data");
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().code, ErrorCode::kConflict);
  EXPECT_THAT(second.error().message, HasSubstr("another skerryd"));
}

TEST(Folder, WithoutATokenItSaysHowToJoin) {
  TempFolder folder;
  const auto data = DataFolder::claim(folder / "data").value();
  const auto member = join(data, "", "", SystemClock(), std::chrono::seconds(1));
  EXPECT_THAT(member.error().message, HasSubstr("skerryd join TOKEN"));
}

TEST(Folder, AGarbledTokenIsInvalid) {
  TempFolder folder;
  const auto data = DataFolder::claim(folder / "data").value();
  EXPECT_EQ(join(data, "skerry1.abc", "", SystemClock(), std::chrono::seconds(1)).error().code,
            ErrorCode::kInvalid);
  EXPECT_EQ(join(data, "file:/absent", "", SystemClock(), std::chrono::seconds(1)).error().code,
            ErrorCode::kNotFound);
}

TEST(Folder, TheDefaultNameIsAValidOne) {
  EXPECT_TRUE(protocol::validate_name(default_name(protocol::Identity::generate()), "node name")
                  .has_value());
}

class OptionsTest : public testing::Test {
 protected:
  ~OptionsTest() override {
    for (const char* name : {"SKERRY_SLOTS", "SKERRY_DATA", "SKERRY_TOKEN", "SKERRY_HOST_LABEL",
                             "SKERRY_UPLOAD_LIMIT", "RUNPOD_POD_ID"})
      ::unsetenv(name);
  }
  Result<Options> parse(std::vector<const char*> words) {
    words.insert(words.begin(), "skerryd");
    auto parsed = parse_options(static_cast<int>(words.size()), words.data());
    if (!parsed) return parsed.error();
    return std::get<Options>(*parsed);
  }
  std::string file(const std::string& words) {
    const std::string path = folder_ / "skerryd.toml";
    std::ofstream(path) << words;
    return path;
  }
  TempFolder folder_;
};

TEST_F(OptionsTest, FlagsComeBeforeTheEnvironmentBeforeTheFile) {
  const std::string path =
      file("data = \"from file\"\nslots = 3\nhost_label = \"rack\"\ndrain_seconds = 5\n");
  ::setenv("SKERRY_SLOTS", "2", 1);
  ::setenv("SKERRY_HOST_LABEL", "chunk_store", 1);
  const auto options = parse({"--config", path.c_str(), "--host-label", "room"}).value();
  EXPECT_EQ(options.data, "from file");
  EXPECT_EQ(options.slots, 2U);
  EXPECT_EQ(options.host_label, "room");
  EXPECT_EQ(options.drain_seconds, 5U);
}

TEST_F(OptionsTest, JoinTakesATokenAndTheOptionsAfterIt) {
  const auto options = parse({"join", "TOKEN", "--data", "d", "--name", "n"}).value();
  EXPECT_EQ(options.token, "TOKEN");
  EXPECT_EQ(options.data, "d");
  EXPECT_EQ(options.name, "n");
  ::setenv("SKERRY_TOKEN", "ENV", 1);
  EXPECT_EQ(parse({"--data", "d"}).value().token, "ENV");
}

TEST_F(OptionsTest, RouterTakesARunAndAFolder) {
  EXPECT_EQ(parse({"--data", "d"}).value().command, Command::kServe);
  const auto options =
      parse({"router", "birds", "--out", "folder", "--data", "d", "-o", "json"}).value();
  EXPECT_EQ(options.command, Command::kRouter);
  EXPECT_EQ(options.run, "birds");
  EXPECT_EQ(options.out, "folder");
  EXPECT_TRUE(options.json);
  EXPECT_FALSE(parse({"router", "birds", "--data", "d"}).has_value());
  EXPECT_FALSE(
      parse({"router", "birds", "--out", "folder", "-o", "xml", "--data", "d"}).has_value());
}

TEST_F(OptionsTest, VerifyTakesAFolder) {
  EXPECT_EQ(parse({"verify", "--data", "d"}).value().command, Command::kVerify);
  EXPECT_TRUE(parse({"--data", "d", "verify", "-o", "json"}).value().json);
}

TEST_F(OptionsTest, AnUnknownKeyIsNamedWithItsLine) {
  const std::string path = file("slots = 1\nslotz = 2\n");
  const auto options = parse({"--data", "d", "--config", path.c_str()});
  ASSERT_FALSE(options.has_value());
  EXPECT_THAT(options.error().message, HasSubstr(":2: unknown key slotz"));
}

TEST_F(OptionsTest, WrongValuesAreRefused) {
  EXPECT_FALSE(parse({}).has_value());
  EXPECT_FALSE(parse({"--data", "d", "--slots", "many"}).has_value());
  EXPECT_FALSE(parse({"--data", "d", "--log-level", "loud"}).has_value());
  const std::string path = file("slots = \"one\"\n");
  EXPECT_THAT(parse({"--data", "d", "--config", path.c_str()}).error().message,
              HasSubstr(":1: slots"));
}

TEST_F(OptionsTest, LimitsAreRatesInAnyUnit) {
  EXPECT_EQ(parse({"--data", "d"}).value().upload_limit, 0U);
  const std::string path = file("upload_limit = \"1MB/s\"\ndownload_limit = \"80Mbit/s\"\n");
  EXPECT_EQ(parse({"--data", "d", "--config", path.c_str()}).value().upload_limit, 1'000'000U);
  ::setenv("SKERRY_UPLOAD_LIMIT", "2MiB/s", 1);
  const auto options = parse({"--data", "d", "--config", path.c_str()}).value();
  EXPECT_EQ(options.upload_limit, 2U << 20);
  EXPECT_EQ(options.download_limit, 10'000'000U);
  EXPECT_EQ(parse({"--data", "d", "--upload-limit", "off"}).value().upload_limit, 0U);
  EXPECT_THAT(parse({"--data", "d", "--download-limit", "fast"}).error().message,
              HasSubstr("--download-limit: expected a rate as 16MB/s"));
}

TEST_F(OptionsTest, RunPodGivesFourSeconds) {
  EXPECT_EQ(parse({"--data", "d"}).value().drain_seconds, 20U);
  ::setenv("RUNPOD_POD_ID", "pod", 1);
  EXPECT_EQ(parse({"--data", "d"}).value().drain_seconds, 4U);
  EXPECT_EQ(parse({"--data", "d", "--drain-seconds", "3"}).value().drain_seconds, 3U);
}

TEST_F(OptionsTest, SpotNamesAPlatform) {
  EXPECT_EQ(parse({"--data", "d"}).value().spot, Spot::kAuto);
  EXPECT_EQ(parse({"--data", "d", "--spot", "azure"}).value().spot, Spot::kAzure);
  EXPECT_EQ(parse({"--data", "d", "--spot", "off"}).value().spot, Spot::kOff);
  EXPECT_THAT(parse({"--data", "d", "--spot", "oracle"}).error().message,
              HasSubstr("--spot: expected auto, aws, gcp, azure or off, found oracle"));
  EXPECT_THAT(parse({"--data", "d", "--metadata", "ftp://x"}).error().message,
              HasSubstr("--metadata: expected http://HOST:PORT"));
}

TEST_F(OptionsTest, APriceAndAnIdleCommand) {
  EXPECT_EQ(parse({"--data", "d"}).value().price, 0);
  const std::string path = file("price = 0.5\nidle_minutes = 30\nidle_exec = \"true\"\n");
  const auto options = parse({"--data", "d", "--config", path.c_str()}).value();
  EXPECT_EQ(options.price, 0.5);
  EXPECT_EQ(options.idle_minutes, 30);
  EXPECT_EQ(options.idle_exec, "true");
  EXPECT_EQ(parse({"--data", "d", "--price", "0.44"}).value().price, 0.44);
  for (const char* price : {"-1", "nan", "inf", "10001"}) {
    EXPECT_THAT(parse({"--data", "d", "--price", price}).error().message,
                HasSubstr("--price: expected dollars an hour from 0 to 10000, found "))
        << price;
  }
  EXPECT_THAT(parse({"--data", "d", "--idle-exec", "true"}).error().message,
              HasSubstr("expected both or neither"));
  EXPECT_THAT(parse({"--data", "d", "--idle-minutes", "5"}).error().message,
              HasSubstr("expected both or neither"));
}

constexpr std::uint64_t kGib = 1 << 30;

std::vector<Card> two_cards() {
  return {{"Fast card", "GPU-fast", 80 * kGib, "9.0"}, {"Slow card", "GPU-slow", 16 * kGib, "7.0"}};
}

TEST(Devices, ThereIsAlwaysASlot) {
  const auto slots = make_slots({}, 0).value();
  ASSERT_EQ(slots.size(), 1U);
  EXPECT_EQ(slots[0].card, "");
  EXPECT_EQ(slots[0].description.device(), "cpu");
  EXPECT_GT(slots[0].description.memory_bytes(), 0U);
  EXPECT_EQ(make_slots({}, 3).value()[2].description.index(), 2U);
  EXPECT_FALSE(make_slots({}, 65).has_value());
}

TEST(Devices, EachCardIsASlotThatNamesIt) {
  const auto slots = make_slots(two_cards(), 0).value();
  ASSERT_EQ(slots.size(), 2U);
  EXPECT_EQ(slots[1].card, "GPU-slow");
  EXPECT_EQ(slots[1].description.device(), "Slow card");
  EXPECT_EQ(slots[1].description.memory_bytes(), 16 * kGib);
  EXPECT_FALSE(slots[1].description.alone());
  EXPECT_TRUE(make_slots({{"Slice", "MIG-1", kGib, "8.0"}}, 0).value()[0].description.alone());
}

TEST(Devices, SlotsShareTheMemoryOfTheirDevice) {
  const auto slots = make_slots(two_cards(), 5).value();
  ASSERT_EQ(slots.size(), 5U);
  EXPECT_EQ(slots[4].card, "GPU-fast");
  EXPECT_EQ(slots[4].description.memory_bytes(), 80 * kGib / 3);
  EXPECT_EQ(slots[3].description.memory_bytes(), 8 * kGib);
  EXPECT_TRUE(slots[4].description.alone()) << "an engine on both would have one card";
  EXPECT_EQ(make_slots({}, 4).value()[3].description.memory_bytes(),
            make_slots({}, 1).value()[0].description.memory_bytes() / 4);
}

// A machine of 64 GB may give a container eight.
TEST(Devices, TheTightestControlGroupLimitsTheMemory) {
  const TempFolder folder;
  const auto write = [&](const std::string& name, const std::string& what) {
    std::filesystem::create_directories(std::filesystem::path(folder / name).parent_path());
    std::ofstream(folder / name) << what;
  };
  const auto limit = [&] { return memory_limit(folder / "groups", folder / "own"); };
  constexpr std::uint64_t kNone = std::numeric_limits<std::uint64_t>::max();
  EXPECT_EQ(limit(), kNone) << "no control groups";
  write("own", "8:pids:/\n0::/pod/one\n");
  EXPECT_EQ(limit(), kNone);
  write("groups/pod/one/memory.max", "max\n");
  EXPECT_EQ(limit(), kNone);
  write("groups/pod/memory.max", "8589934592\n");
  EXPECT_EQ(limit(), 8 * kGib);
  write("groups/memory.max", "4294967296\n");
  EXPECT_EQ(limit(), 4 * kGib);
  write("own", "4:memory:/not/seen/here\n");
  EXPECT_EQ(limit(), kNone);
  write("groups/memory/memory.limit_in_bytes", "2147483648\n");
  EXPECT_EQ(limit(), 2 * kGib);
}

class CardsTest : public ::testing::Test {
 protected:
  // A program that prints these words and ends with this status.
  std::string engine(const std::string& words, int status = 0) {
    return script(text("echo '", words, "'\nexit ", status));
  }
  std::string script(const std::string& body) {
    const std::string path = folder_ / "engine";
    std::ofstream(path) << "#!/bin/sh\n" << body << "\n";
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    return path;
  }

 private:
  TempFolder folder_;
};

TEST_F(CardsTest, AnEngineThatSeesNoneOfThemIsRefused) {
  const auto refused =
      check_cards(engine("LibTorch 2.11.0 for CUDA 13.0, no CUDA device"), "570.124.06");
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalid);
  EXPECT_THAT(refused.error().message, AllOf(HasSubstr("driver 570.124.06"), HasSubstr("580.65"),
                                             HasSubstr("CUDA_VISIBLE_DEVICES")));
}

TEST_F(CardsTest, AnEngineThatSeesOneOrDoesNotAnswerIsTaken) {
  EXPECT_TRUE(check_cards(engine("LibTorch 2.11.0 for CUDA 13.0, 1 CUDA device"), "570.124.06")
                  .has_value());
  EXPECT_TRUE(check_cards(engine("no CUDA device", 1), "570.124.06").has_value());
  EXPECT_TRUE(check_cards("/nowhere/engine", "570.124.06").has_value());
}

TEST_F(CardsTest, ThoseThatAreLeftAreListedByAProcessOfItsOwn) {
  EXPECT_EQ(list_cards(script("[ $1 = list-cards ] && echo GPU-slow && echo 'all are listed'"), -1)
                .value(),
            std::vector<std::string>{"GPU-slow"});
  EXPECT_FALSE(list_cards(script("echo GPU-slow"), -1).has_value()) << "it may lack some";
  EXPECT_FALSE(list_cards("/nowhere/skerryd", -1).has_value());
}

TEST_F(CardsTest, ACardThatCannotTrainIsNamedWithWhatToDo) {
  EXPECT_TRUE(check_training(engine("well"), two_cards()).has_value());
  const auto refused = check_training(script("[ $CUDA_VISIBLE_DEVICES = GPU-fast ] || { echo 'CUDA "
                                             "error: no kernel image'; exit 1; }"),
                                      two_cards());
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalid);
  EXPECT_THAT(
      refused.error().message,
      AllOf(HasSubstr("Slow card (GPU-slow, compute capability 7.0)"), HasSubstr("no kernel image"),
            HasSubstr("./dev setup --torch DIR"), HasSubstr("CUDA_VISIBLE_DEVICES=GPU-fast")));
}

}  // namespace
}  // namespace skerry::daemon
