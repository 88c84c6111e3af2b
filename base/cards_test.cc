// SPDX-License-Identifier: Apache-2.0
// The cards of a machine through tests/fake_cuda, which stands in for the
// driver's library.
#include "base/cards.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <fstream>

#include "base/temp_folder.h"

namespace skerry {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr const char* kFast = "GPU-aaaaaaaa-0000-0000-0000-00000000000f";
constexpr const char* kSlow = "GPU-bbbbbbbb-0000-0000-0000-000000000002";
constexpr const char* kFirstSlice = "MIG-cccccccc-0000-0000-0000-000000000003";
constexpr const char* kSecondSlice = "MIG-dddddddd-0000-0000-0000-000000000004";
constexpr const char* kUnlike =
    "Fast card|aaaaaaaa-0000-0000-0000-00000000000f|85899345920|9.0|0b|;"
    "Slow card|bbbbbbbb-0000-0000-0000-000000000002|17179869184|7.0|07|";
constexpr const char* kSliced =
    "A100 MIG "
    "1g.10gb|cccccccc-0000-0000-0000-000000000003|10737418240|8.0|07|aaaaaaaa-0000-0000-0000-"
    "00000000000f;"
    "A100 MIG "
    "1g.10gb|dddddddd-0000-0000-0000-000000000004|10737418240|8.0|07|aaaaaaaa-0000-0000-0000-"
    "00000000000f";

class CardsTest : public ::testing::Test {
 protected:
  CardsTest() { set("SKERRY_FAKE_CARDS", kUnlike); }
  ~CardsTest() override {
    for (const char* name : {"SKERRY_FAKE_CARDS", "SKERRY_FAKE_CUDA_INIT", "SKERRY_FAKE_CUDA_BAD",
                             "SKERRY_FAKE_DRIVER", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"}) {
      ::unsetenv(name);
    }
  }
  static void set(const char* name, const std::string& value) { ::setenv(name, value.c_str(), 1); }
  void add_device() { std::ofstream(folder_ / "nvidia0") << ""; }

  CardSearch search() const {
    CardSearch search;
    search.library = FAKE_CUDA;
    search.devices = folder_.path().string();
    return search;
  }
  Error refused(const CardSearch& search) const {
    const auto found = find_cards(search);
    EXPECT_FALSE(found.has_value());
    return found ? Error{} : found.error();
  }
  std::vector<std::string> ids() const {
    std::vector<std::string> ids;
    const auto found = find_cards(search());
    if (!found) return {found.error().message};
    for (const Card& card : *found) ids.push_back(card.id);
    return ids;
  }

  TempFolder folder_;
};

TEST_F(CardsTest, AreThoseOfCudaInItsOrder) {
  const auto cards = find_cards(search()).value();
  ASSERT_EQ(cards.size(), 2U);
  EXPECT_EQ(cards[0].name, "Fast card");
  EXPECT_EQ(cards[0].id, kFast);
  EXPECT_EQ(cards[0].memory_bytes, 85899345920U);
  EXPECT_EQ(cards[0].capability, "9.0");
  EXPECT_EQ(cards[1].id, kSlow);
  set("CUDA_DEVICE_ORDER", "PCI_BUS_ID");
  EXPECT_THAT(ids(), ElementsAre(kSlow, kFast));
}

TEST_F(CardsTest, AreThoseThatAreVisible) {
  const auto visible = [&](const char* list) {
    set("CUDA_VISIBLE_DEVICES", list);
    return ids();
  };
  EXPECT_THAT(visible("1"), ElementsAre(kSlow));
  EXPECT_THAT(visible("GPU-b,GPU-a"), ElementsAre(kSlow, kFast));
  EXPECT_THAT(visible("0,7,1"), ElementsAre(kFast));
  EXPECT_THAT(visible("7,0"), IsEmpty());
}

TEST_F(CardsTest, NobodyIsAskedWhereTheCpuIsWanted) {
  set("SKERRY_FAKE_CUDA_INIT", "hang");
  add_device();
  for (const char* list : {"", "-1", " ", "NoDevFiles", "-1,0"}) {
    set("CUDA_VISIBLE_DEVICES", list);
    EXPECT_THAT(ids(), IsEmpty()) << list;
  }
}

TEST_F(CardsTest, ASliceHasItsOwnNameAndMemory) {
  set("SKERRY_FAKE_CARDS", kSliced);
  const auto cards = find_cards(search()).value();
  ASSERT_EQ(cards.size(), 1U);
  EXPECT_EQ(cards[0].id, kFirstSlice);
  EXPECT_EQ(cards[0].memory_bytes, 10737418240U);
}

TEST_F(CardsTest, SlicesThatAreNamedAreAskedForOneByOne) {
  set("SKERRY_FAKE_CARDS", kSliced);
  set("CUDA_VISIBLE_DEVICES",
      std::string(kFirstSlice) + "," + kSecondSlice + ",MIG-eeee," + kFirstSlice);
  EXPECT_THAT(ids(), ElementsAre(kFirstSlice, kSecondSlice));
}

TEST_F(CardsTest, AMachineWithoutLibraryAndDeviceHasNone) {
  CardSearch nothing = search();
  nothing.library = "libcuda-that-is-not-here.so.1";
  EXPECT_THAT(find_cards(nothing).value(), IsEmpty());
  add_device();
  const Error error = refused(nothing);
  EXPECT_EQ(error.code, ErrorCode::kInvalid);
  EXPECT_THAT(error.message, AllOf(HasSubstr("nvidia0"), HasSubstr("libcuda-that-is-not-here.so.1"),
                                   HasSubstr("NVIDIA_DRIVER_CAPABILITIES=compute,utility")));
}

TEST_F(CardsTest, ACardThatNothingNamesIsNotHiddenInSilence) {
  add_device();
  set("CUDA_VISIBLE_DEVICES", "GPU-eeee");
  EXPECT_THAT(
      refused(search()).message,
      AllOf(HasSubstr("CUDA_VISIBLE_DEVICES=GPU-eeee names none"), HasSubstr("nvidia-smi -L")));
  for (const char* list : {"all", "gpu-a", "cuda:0"}) {
    set("CUDA_VISIBLE_DEVICES", list);
    EXPECT_THAT(refused(search()).message, HasSubstr("names none")) << list;
  }
  ::unsetenv("CUDA_VISIBLE_DEVICES");
  set("SKERRY_FAKE_CARDS", "");
  EXPECT_THAT(refused(search()).message, HasSubstr("pass all of /dev/nvidia*"));
}

TEST_F(CardsTest, AWordThatIsNoCardIsRefusedWithoutOneToo) {
  set("SKERRY_FAKE_CARDS", "");
  CardSearch nothing = search();
  nothing.library = "libcuda-that-is-not-here.so.1";
  for (const char* list : {"cuda:0", "all", "gpu-a", "0x1,0"}) {
    set("CUDA_VISIBLE_DEVICES", list);
    for (const CardSearch& where : {search(), nothing}) {
      EXPECT_EQ(refused(where).code, ErrorCode::kInvalid) << list;
      EXPECT_THAT(refused(where).message,
                  AllOf(HasSubstr(std::string("CUDA_VISIBLE_DEVICES=") + list),
                        HasSubstr("an index or an identifier"), HasSubstr("to train on the CPU")));
    }
  }
  for (const char* list : {"0", "7,cuda:0", " 1", "GPU-eeee", "MIG-eeee"}) {
    set("CUDA_VISIBLE_DEVICES", list);
    EXPECT_THAT(find_cards(nothing).value(), IsEmpty()) << list;
  }
}

TEST_F(CardsTest, ACardThatDoesNotAnswerLeavesTheOthers) {
  set("SKERRY_FAKE_CUDA_BAD", "0");
  EXPECT_THAT(ids(), ElementsAre(kSlow));
  set("CUDA_VISIBLE_DEVICES", "0");
  EXPECT_EQ(refused(search()).code, ErrorCode::kUnavailable);
  EXPECT_THAT(refused(search()).message, HasSubstr("cuDeviceGetName returned error 101"));
}

TEST_F(CardsTest, ADriverThatChangesIsAskedAgain) {
  const std::string file = folder_ / "driver";
  const auto becomes = [&](const std::string& line) { std::ofstream(file) << line << "\n"; };
  set("SKERRY_FAKE_DRIVER", file);
  becomes(std::string("SKERRY_FAKE_CARDS=") + kUnlike);
  EXPECT_THAT(ids(), ElementsAre(kFast, kSlow));
  becomes("SKERRY_FAKE_CUDA_BAD=0");  // it has fallen off the bus
  EXPECT_THAT(ids(), ElementsAre(kSlow));
  becomes("SKERRY_FAKE_CUDA_INIT=802");
  EXPECT_EQ(refused(search()).code, ErrorCode::kUnavailable);
  becomes(std::string("SKERRY_FAKE_CARDS=") + kSliced);
  EXPECT_THAT(ids(), ElementsAre(kFirstSlice));
}

TEST_F(CardsTest, AToolkitsStubIsNoDriver) {
  set("SKERRY_FAKE_CUDA_INIT", "34");
  EXPECT_THAT(ids(), IsEmpty());
  add_device();
  EXPECT_THAT(refused(search()).message, HasSubstr("stub"));
}

TEST_F(CardsTest, ACudaThatFailsIsTriedAgain) {
  set("SKERRY_FAKE_CUDA_INIT", "802");
  EXPECT_EQ(refused(search()).code, ErrorCode::kUnavailable);
  EXPECT_THAT(refused(search()).message, HasSubstr("cuInit returned CUDA_ERROR_SYSTEM_NOT_READY"));
  set("SKERRY_FAKE_CUDA_INIT", "crash");
  EXPECT_EQ(refused(search()).code, ErrorCode::kUnavailable);
  EXPECT_THAT(refused(search()).message, HasSubstr("ended with status 134"));
}

TEST_F(CardsTest, ADriverThatHangsHoldsNobody) {
  set("SKERRY_FAKE_CUDA_INIT", "hang");
  CardSearch impatient = search();
  impatient.options.limit = std::chrono::milliseconds(1);
  EXPECT_EQ(refused(impatient).code, ErrorCode::kTimeout);
  EXPECT_THAT(refused(impatient).message, AllOf(HasSubstr("did not answer"), HasSubstr("dmesg")));
  std::array<int, 2> pipe{};
  ASSERT_EQ(::pipe(pipe.data()), 0);
  ASSERT_EQ(::write(pipe[1], "x", 1), 1);
  CardSearch stopped = search();
  stopped.options = {.stop = pipe[0]};
  EXPECT_EQ(refused(stopped).code, ErrorCode::kUnavailable);
  for (const int end : pipe) ::close(end);
}

}  // namespace
}  // namespace skerry
