// SPDX-License-Identifier: Apache-2.0
#include "storage/tensorboard_file.h"

#include <gtest/gtest.h>

#include <sstream>

#include "base/temp_folder.h"

namespace skerry::storage {
namespace {

std::string hex(std::string_view bytes) {
  std::string out;
  for (const char byte : bytes) {
    out += "0123456789abcdef"[static_cast<unsigned char>(byte) >> 4];
    out += "0123456789abcdef"[static_cast<unsigned char>(byte) & 15];
  }
  return out;
}

TEST(Crc32c, IsTheOneOfRfc3720) {
  EXPECT_EQ(crc32c("123456789"), 0xe3069283U);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aaU);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43U);
  EXPECT_EQ(crc32c(""), 0U);
}

// Lengths, sums and fields written out: 24 and 27 bytes of events.
TEST(TensorBoardFile, HoldsWhatTensorBoardReads) {
  TempFolder folder;
  auto file = TensorBoardFile::create(folder / "events", 1.0);
  ASSERT_TRUE(file) << file.error().message;
  ASSERT_TRUE(file->add(300, 2.0, {{"loss", 0.5}}));
  EXPECT_NE(file->path().find("events/events.out.tfevents.1."), std::string::npos);
  std::ostringstream bytes;
  bytes << std::ifstream(file->path(), std::ios::binary).rdbuf();
  const std::string all = bytes.str();
  const std::string version =
      "09000000000000f03f"
      "1a0d" +
      hex("brain.Event:2");
  const std::string scalar =
      "090000000000000040"
      "10ac02"
      "2a0d"
      "0a0b"
      "0a04" +
      hex("loss") + "150000003f";
  ASSERT_EQ(all.size(), 2 * 16 + (version.size() + scalar.size()) / 2);
  EXPECT_EQ(hex(all.substr(0, 8)), "1800000000000000");
  // The sum of this length, as every file of TensorBoard begins.
  EXPECT_EQ(hex(all.substr(8, 4)), "a37f4b22");
  EXPECT_EQ(hex(all.substr(12, 24)), version);
  const std::string second = all.substr(40);
  EXPECT_EQ(hex(second.substr(0, 8)), "1b00000000000000");
  EXPECT_EQ(hex(second.substr(12, second.size() - 16)), scalar);
}

TEST(TensorBoardFile, AFolderThatCannotBeMadeIsNamed) {
  const auto file = TensorBoardFile::create("/dev/null/events", 1);
  ASSERT_FALSE(file);
  EXPECT_NE(file.error().message.find("/dev/null/events"), std::string::npos);
}

}  // namespace
}  // namespace skerry::storage
