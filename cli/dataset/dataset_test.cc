// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "base/temp_folder.h"
#include "cli/dataset/dataset_index.h"
#include "cli/shell/exit_code.h"
#include "cli/shell/output.h"
#include "cli/testing/testing.h"
#include "storage/manifest.h"

namespace skerry::cli {
namespace {

namespace fs = std::filesystem;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

Json small_index() {
  return {{"format", 1},
          {"partitions", 2},
          {"samples", 5},
          {"channels", 1},
          {"image_size", 8},
          {"classes", {"disc"}},
          {"partition_samples", {3, 2}},
          {"skipped", 1},
          {"skipped_examples", Json::array({{{"path", "a/broken.png"}, {"reason", "truncated"}}})},
          {"files",
           {{{"name", "shard-0-0.safetensors"},
             {"role", "shard"},
             {"partition", 0},
             {"samples", 3},
             {"bytes", 7}},
            {{"name", "router.safetensors"},
             {"role", "router"},
             {"partition", -1},
             {"samples", 0},
             {"bytes", 6}}}}};
}

void write_dataset(const std::string& folder, const Json& index) {
  fs::create_directories(folder);
  std::ofstream(folder + "/shard-0-0.safetensors") << "shard 0";
  std::ofstream(folder + "/router.safetensors") << "router";
  std::ofstream(folder + "/dataset.json") << index.dump();
}

class DatasetAdd : public testing::Test {
 protected:
  DatasetAdd() {
    fs::create_directories(folder / "images");
    around.variables["TMPDIR"] = folder.path().string();
    around.programs["skerry-engine"] = true;
    around.run = [](const std::vector<std::string>& words,
                    const std::function<void(const std::string&)>& on_line) {
      on_line(R"({"stage":"read","done":5,"total":5})");
      on_line(R"({"stage":"done","ratio":1.5})");
      write_dataset(words[4], small_index());
      return 0;
    };
    around.coordinator.answers[pb::AdminRequest::kDatasetShow] = [this](const pb::AdminRequest&) {
      pb::AdminReply reply;
      pb::DatasetInfo& info = *reply.mutable_datasets()->add_datasets();
      info.set_name("shapes");
      info.set_state(received == 13 ? "ready" : "uploading");
      info.set_bytes(13);
      info.set_received_bytes(received);
      if (const pb::AdminRequest* add = request(pb::AdminRequest::kDatasetAdd)) {
        info.set_caption_dim(add->dataset_add().caption_dim());
        info.set_caption_tokens(add->dataset_add().caption_tokens());
        info.set_text_encoder(add->dataset_add().text_encoder());
      }
      return Result<pb::AdminReply>(reply);
    };
    // Pulls every file as the coordinator does: manifest, then chunks.
    around.coordinator.pull = [this](exchange::ChunkStore& chunk_store) {
      const pb::AdminRequest* add = request(pb::AdminRequest::kDatasetAdd);
      ASSERT_NE(add, nullptr);
      received = 0;
      for (const pb::DatasetFile& file : add->dataset_add().files()) {
        const Hash name = Hash::from_raw(file.object().manifest()).value();
        const auto encoded = chunk_store.read(name, name);
        ASSERT_TRUE(encoded.has_value());
        const auto manifest = storage::decode_manifest(*encoded);
        ASSERT_TRUE(manifest.has_value());
        EXPECT_EQ(manifest->name, name);
        for (const storage::Chunk& chunk : storage::distinct_chunks(manifest->manifest)) {
          const auto bytes = chunk_store.read(name, chunk.hash);
          ASSERT_TRUE(bytes.has_value());
          EXPECT_EQ(blake2b(*bytes), chunk.hash);
          received += bytes->size();
        }
        EXPECT_FALSE(chunk_store.read(name, blake2b("else")).has_value());
        EXPECT_FALSE(chunk_store.read(blake2b("else"), name).has_value());
      }
    };
  }

  const pb::AdminRequest* request(pb::AdminRequest::BodyCase what) const {
    for (const pb::AdminRequest& asked : around.coordinator.asked) {
      if (asked.body_case() == what) return &asked;
    }
    return nullptr;
  }

  std::size_t leftovers() const {
    std::size_t count = 0;
    for (const auto& entry : fs::directory_iterator(folder.path())) {
      count += entry.path().filename().string().starts_with(".skerry-ingest");
    }
    return count;
  }

  TempFolder folder;
  FakeSurroundings around;
  std::uint64_t received = 0;
};

// Too shortly away for a question to stay unanswered.
TEST_F(DatasetAdd, IsAnnouncedAgainToACoordinatorThatStartedAgain) {
  const auto pull = around.coordinator.pull;
  around.coordinator.pull = [this, pull](exchange::ChunkStore& chunk_store) {
    const auto announced =
        std::ranges::count_if(around.coordinator.asked, [](const pb::AdminRequest& asked) {
          return asked.body_case() == pb::AdminRequest::kDatasetAdd;
        });
    if (announced > 1) pull(chunk_store);
  };
  EXPECT_EQ(around({"dataset", "add", "shapes", folder / "images", "--partitions", "2"}), kExitOk)
      << around.told();
}

TEST_F(DatasetAdd, TellsTheEngineHowLatentsAreScaled) {
  ASSERT_EQ(around({"dataset", "add", "shapes", folder / "images", "--partitions", "2",
                    "--latent-scale", "0.18215", "--latent-shift", "-0.5", "--latents-scaled"}),
            kExitOk)
      << around.told();
  ASSERT_EQ(around.ran.size(), 1U);
  EXPECT_THAT(
      std::vector(around.ran[0].begin() + 9, around.ran[0].end()),
      ElementsAre("--latent-scale", "0.18215", "--latent-shift", "-0.5", "--latents-scaled"));
}

TEST_F(DatasetAdd, AnotherAutoencoderIsAnotherIngestion) {
  around.coordinator.refuse(pb::AdminRequest::kDatasetAdd, ErrorCode::kUnavailable, "away");
  std::vector<std::string> words = {"dataset",      "add", "shapes", folder / "images",
                                    "--partitions", "2",   "--vae",  "one"};
  around(words);
  ASSERT_EQ(around.ran.size(), 1U);
  EXPECT_THAT(std::vector(around.ran[0].end() - 2, around.ran[0].end()),
              ElementsAre("--vae", "one"));
  around(words);
  EXPECT_EQ(around.ran.size(), 1U) << "the same goes on";
  words.back() = "other";
  around(words);
  EXPECT_EQ(around.ran.size(), 2U);
}

TEST_F(DatasetAdd, TellsTheEngineHowCaptionsAreEncoded) {
  around.coordinator.refuse(pb::AdminRequest::kDatasetAdd, ErrorCode::kUnavailable, "away");
  std::vector<std::string> words = {"dataset",    "add",   "shapes",         folder / "images",
                                    "--captions", "class", "--text-encoder", "one",
                                    "--longest",  "120",   "--partitions",   "2"};
  around(words);
  ASSERT_EQ(around.ran.size(), 1U);
  EXPECT_THAT(std::vector(around.ran[0].end() - 6, around.ran[0].end()),
              ElementsAre("--captions", "class", "--text-encoder", "one", "--longest", "120"));
  around(words);
  EXPECT_EQ(around.ran.size(), 1U) << "the same goes on";
  std::set<std::string> folders{around.ran[0][4]};
  for (const auto& [at, other] : {std::pair{5, "auto"}, {7, "two"}, {9, "121"}}) {
    words[static_cast<std::size_t>(at)] = other;
    around(words);
    EXPECT_TRUE(folders.insert(around.ran.back()[4]).second) << other << " is another ingestion";
  }
  around({"dataset", "add", "shapes", folder / "images", "--caption-embeddings", "file",
          "--partitions", "2"});
  EXPECT_THAT(std::vector(around.ran.back().end() - 2, around.ran.back().end()),
              ElementsAre("--caption-embeddings", "file"));
  EXPECT_EQ(around({"dataset", "add", "shapes", folder / "images", "--captions", "some"}),
            kExitUsage);
  EXPECT_EQ(around({"dataset", "add", "shapes", folder / "images", "--captions", "class",
                    "--partitions", "2"}),
            kExitUsage);
  EXPECT_THAT(around.told(), HasSubstr("add --text-encoder DIR"));
}

// A dataset with `bytes` of captions for its three samples.
void write_captioned(const std::string& folder, std::uint64_t bytes) {
  Json index = small_index();
  index["text"] = {{"dim", 4096}, {"encoder", "t5:0123456789ab"}, {"longest", 20}};
  index["files"].push_back({{"name", "captions-0-0.safetensors"},
                            {"role", "captions"},
                            {"partition", 0},
                            {"samples", 3},
                            {"bytes", bytes}});
  write_dataset(folder, index);
  std::ofstream(folder + "/captions-0-0.safetensors") << std::string(bytes, 'c');
}

TEST_F(DatasetAdd, CaptionsAreAnnouncedAndTheirSizeIsSaidBefore) {
  around.coordinator.refuse(pb::AdminRequest::kDatasetAdd, ErrorCode::kUnavailable, "away");
  write_captioned(folder / "ready", 180'000);
  around({"dataset", "add", "shapes", folder / "ready"});
  EXPECT_THAT(around.told(), HasSubstr("captions: 175.8 KiB, 58.6 KiB a sample"));
  EXPECT_THAT(around.told(), HasSubstr("above 50 KB a sample: a smaller encoder, such as "
                                       "google/flan-t5-base with 768 numbers a token in place of "
                                       "4096"));
  ASSERT_NE(request(pb::AdminRequest::kDatasetAdd), nullptr);
  const pb::DatasetAdd& add = request(pb::AdminRequest::kDatasetAdd)->dataset_add();
  EXPECT_EQ(add.files(2).role(), "captions");

  write_captioned(folder / "small", 90'000);
  around({"dataset", "add", "shapes", folder / "small"});
  EXPECT_THAT(around.told(), HasSubstr("captions: 87.9 KiB, 29.3 KiB a sample"));
  EXPECT_THAT(around.told(), Not(HasSubstr("smaller encoder")));
}

TEST_F(DatasetAdd, SaysWhatTheTextIsAsJson) {
  write_dataset(folder / "ready", small_index());
  ASSERT_EQ(around({"dataset", "add", "shapes", folder / "ready", "-o", "json"}), kExitOk);
  EXPECT_TRUE(Json::parse(around.printed())["text"].is_null());
  Json index = small_index();
  index["text"] = {{"dim", 48}, {"encoder", "imported"}, {"longest", 20}};
  write_dataset(folder / "ready", index);
  around.coordinator.asked.clear();
  ASSERT_EQ(around({"dataset", "add", "shapes", folder / "ready", "-o", "json"}), kExitOk);
  EXPECT_EQ(Json::parse(around.printed())["text"], index["text"]);
}

TEST_F(DatasetAdd, TextThatMakesNoSenseIsRefused) {
  for (const Json& bad : {Json{{"dim", 0}, {"encoder", "imported"}, {"longest", 20}},
                          Json{{"dim", 1U << 20}, {"encoder", "imported"}, {"longest", 20}},
                          Json{{"dim", 48}, {"encoder", "imported"}, {"longest", 0}},
                          Json{{"dim", 48}, {"encoder", std::string(65, 'e')}, {"longest", 20}},
                          Json{{"dim", 48}, {"encoder", "imported"}}, Json("imported")}) {
    Json index = small_index();
    index["text"] = bad;
    write_dataset(folder / "ready", index);
    EXPECT_NE(around({"dataset", "add", "shapes", folder / "ready"}), kExitOk) << bad.dump();
    EXPECT_EQ(request(pb::AdminRequest::kDatasetAdd), nullptr);
  }
}

TEST_F(DatasetAdd, LatentsAreAnnouncedAndCalledSo) {
  Json index = small_index();
  index["latents"] = {{"scale", 0.5}, {"shift", 0}};
  write_dataset(folder / "ready", index);
  ASSERT_EQ(around({"dataset", "add", "shapes", folder / "ready"}), kExitOk) << around.told();
  EXPECT_TRUE(request(pb::AdminRequest::kDatasetAdd)->dataset_add().latents());
  around.coordinator.answers[pb::AdminRequest::kDatasetList] =
      around.coordinator.answers[pb::AdminRequest::kDatasetShow] = [](const pb::AdminRequest&) {
        pb::AdminReply reply;
        pb::DatasetInfo& info = *reply.mutable_datasets()->add_datasets();
        info.set_image_size(8);
        info.set_channels(4);
        info.set_samples(5);
        info.set_latents(true);
        return Result<pb::AdminReply>(reply);
      };
  ASSERT_EQ(around({"dataset", "list"}), kExitOk);
  EXPECT_THAT(around.printed(), HasSubstr("8x8x4 latents"));
  ASSERT_EQ(around({"dataset", "show", "shapes"}), kExitOk);
  EXPECT_THAT(around.printed(), HasSubstr("5 latents of 8x8 with 4 channels"));
}

TEST_F(DatasetAdd, IngestsUploadsAndCleansUp) {
  ASSERT_EQ(around({"dataset", "add", "shapes", folder / "images", "--partitions", "2",
                    "--image-size", "8", "--features", "pca"}),
            kExitOk)
      << around.told();
  ASSERT_EQ(around.ran.size(), 1U);
  const std::vector<std::string>& words = around.ran[0];
  EXPECT_THAT(std::vector(words.begin(), words.begin() + 4),
              ElementsAre("/bin/skerry-engine", "ingest", folder / "images", "--out"));
  EXPECT_THAT(std::vector(words.begin() + 5, words.end()),
              ElementsAre("--partitions", "2", "--progress", "json", "--image-size", "8",
                          "--features", "pca"));
  const pb::AdminRequest* add = request(pb::AdminRequest::kDatasetAdd);
  ASSERT_NE(add, nullptr);
  EXPECT_EQ(add->dataset_add().name(), "shapes");
  EXPECT_EQ(add->dataset_add().partitions(), 2U);
  EXPECT_EQ(add->dataset_add().samples(), 5U);
  EXPECT_THAT(add->dataset_add().classes(), ElementsAre("disc"));
  ASSERT_EQ(add->dataset_add().files_size(), 2);
  EXPECT_EQ(add->dataset_add().files(0).object().name(), "shard-0-0.safetensors");
  EXPECT_EQ(add->dataset_add().files(0).samples(), 3U);
  EXPECT_EQ(add->dataset_add().files(1).partition(), -1);
  EXPECT_EQ(received, 13U);
  EXPECT_THAT(around.told(), HasSubstr("has 1.50 times the samples of the smallest"));
  EXPECT_EQ(leftovers(), 0U);
}

TEST_F(DatasetAdd, AnInterruptedUploadDoesNotIngestAgain) {
  around.coordinator.refuse(pb::AdminRequest::kDatasetAdd, ErrorCode::kUnavailable, "away");
  const std::vector<std::string> words = {"dataset",         "add",          "shapes",
                                          folder / "images", "--partitions", "2"};
  EXPECT_EQ(around(words), kExitUnreachable);
  EXPECT_EQ(leftovers(), 1U);
  around.coordinator.answers.erase(pb::AdminRequest::kDatasetAdd);
  around.coordinator.asked.clear();
  EXPECT_EQ(around(words), kExitOk) << around.told();
  EXPECT_EQ(around.ran.size(), 1U);
  EXPECT_EQ(leftovers(), 0U);
}

TEST_F(DatasetAdd, AnotherPartitioningIsAnotherIngestion) {
  around.coordinator.refuse(pb::AdminRequest::kDatasetAdd, ErrorCode::kUnavailable, "away");
  around({"dataset", "add", "shapes", folder / "images", "--partitions", "2"});
  around({"dataset", "add", "shapes", folder / "images", "--partitions", "3"});
  EXPECT_EQ(around.ran.size(), 2U);
}

TEST_F(DatasetAdd, AFailedIngestionLeavesNothingAndKeepsTheEnginesCode) {
  around.run = [](const std::vector<std::string>& words,
                  const std::function<void(const std::string&)>&) {
    fs::create_directories(words[4]);
    return 2;
  };
  EXPECT_EQ(around({"dataset", "add", "shapes", folder / "images", "--partitions", "2"}),
            kExitUsage);
  EXPECT_EQ(leftovers(), 0U);
  EXPECT_EQ(request(pb::AdminRequest::kDatasetAdd), nullptr);
}

TEST_F(DatasetAdd, AnIngestedFolderIsTakenAsItIsAndStays) {
  write_dataset(folder / "ready", small_index());
  EXPECT_EQ(around({"dataset", "add", "shapes", folder / "ready"}), kExitOk) << around.told();
  EXPECT_TRUE(around.ran.empty());
  EXPECT_THAT(around.told(), HasSubstr("a/broken.png: truncated"));
  EXPECT_TRUE(fs::exists(folder / "ready/dataset.json"));
  EXPECT_EQ(around({"dataset", "add", "shapes", folder / "ready", "--partitions", "3"}),
            kExitUsage);
  EXPECT_THAT(around.told(), HasSubstr("ingested already, into 2 partitions, not 3"));
}

TEST_F(DatasetAdd, AViewerIsToldBeforeAnyWork) {
  around.coordinator.place.role = pb::ROLE_VIEWER;
  EXPECT_EQ(around({"dataset", "add", "shapes", folder / "images", "--partitions", "2"}),
            kExitAuth);
  EXPECT_TRUE(around.ran.empty());
}

TEST_F(DatasetAdd, WhileAnotherIngestsTheSameIsAConflict) {
  int inner = -1;
  const auto engine = around.run;
  around.run = [&](const auto& words, const auto& on_line) {
    FakeSurroundings another;
    another.variables = around.variables;
    another.programs = around.programs;
    another.coordinator.refuse(pb::AdminRequest::kDatasetShow, ErrorCode::kNotFound, "none");
    inner = another({"dataset", "add", "shapes", folder / "images", "--partitions", "2"});
    return engine(words, on_line);
  };
  EXPECT_EQ(around({"dataset", "add", "shapes", folder / "images", "--partitions", "2"}), kExitOk)
      << around.told();
  EXPECT_EQ(inner, kExitConflict);
}

TEST_F(DatasetAdd, ANameTakenByOtherContentKeepsWhatWasIngested) {
  around.coordinator.refuse(pb::AdminRequest::kDatasetAdd, ErrorCode::kConflict,
                            "exists with other content");
  EXPECT_EQ(around({"dataset", "add", "shapes", folder / "images", "--partitions", "2"}),
            kExitConflict);
  EXPECT_THAT(around.told(), HasSubstr("`skerry dataset add NAME "));
}

TEST_F(DatasetAdd, GoesOnWhenTheCoordinatorHasRestarted) {
  int asked = 0;
  const auto show = around.coordinator.answers.at(pb::AdminRequest::kDatasetShow);
  around.coordinator.answers[pb::AdminRequest::kDatasetShow] =
      [&asked, show](const pb::AdminRequest& request) -> Result<pb::AdminReply> {
    if (++asked == 2) return fail(ErrorCode::kTimeout, "no answer");
    return show(request);
  };
  EXPECT_EQ(around({"dataset", "add", "shapes", folder / "images", "--partitions", "2"}), kExitOk)
      << around.told();
  EXPECT_THAT(around.told(), HasSubstr("the coordinator is back"));
}

TEST_F(DatasetAdd, BadInputIsRefusedBeforeAnyWork) {
  EXPECT_EQ(around({"dataset", "add", "shapes", folder / "nothing", "--partitions", "2"}),
            kExitNotFound);
  EXPECT_EQ(around({"dataset", "add", "shapes", folder / "images"}), kExitUsage);
  EXPECT_THAT(around.told(), HasSubstr("--partitions K is missing"));
  EXPECT_EQ(around({"dataset", "add", "No Name", folder / "images", "--partitions", "2"}),
            kExitUsage);
  around.programs.clear();
  EXPECT_EQ(around({"dataset", "add", "shapes", folder / "images", "--partitions", "2"}),
            kExitNotFound);
  EXPECT_TRUE(around.ran.empty());
}

TEST(DatasetIndex, AFolderThatContradictsItsIndexIsRefused) {
  const TempFolder folder;
  const auto refused = [&](const std::string& words, const std::function<void(Json&)>& change) {
    Json index = small_index();
    change(index);
    write_dataset(folder.path().string(), index);
    const auto read = read_dataset_index(folder.path().string());
    ASSERT_FALSE(read.has_value()) << words;
    EXPECT_THAT(read.error().message, HasSubstr(words));
  };
  refused("format 2 is not known", [](Json& index) { index["format"] = 2; });
  refused("samples", [](Json& index) { index.erase("samples"); });
  refused("samples of 1", [](Json& index) { index["partition_samples"] = {5}; });
  refused("should have 8 bytes, found 7", [](Json& index) { index["files"][0]["bytes"] = 8; });
  refused("is no file name", [](Json& index) { index["files"][0]["name"] = "../shard"; });
  refused("is missing in the folder", [](Json& index) { index["files"][0]["name"] = "gone"; });
  refused("makes no sense", [](Json& index) { index["files"][0]["role"] = "what"; });
  refused("makes no sense", [](Json& index) { index["files"][0]["partition"] = 2; });
  refused("found 0", [](Json& index) { index["files"] = Json::array(); });
  std::ofstream(folder / "dataset.json") << "{";
  EXPECT_EQ(read_dataset_index(folder.path().string()).error().code, ErrorCode::kCorrupt);
}

}  // namespace
}  // namespace skerry::cli
