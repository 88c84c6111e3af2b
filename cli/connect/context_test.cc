// SPDX-License-Identifier: Apache-2.0
#include "cli/connect/context.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/temp_folder.h"
#include "cli/testing/testing.h"

namespace skerry::cli {
namespace {

void touch(const std::string& path) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path) << "x";
}

TEST(Context, FlagThenVariableThenPersonalThenMachine) {
  const TempFolder folder;
  const std::string machine = folder / "etc/context.toml";
  FakeSurroundings around;
  around.variables["HOME"] = folder / "home";
  EXPECT_EQ(find_context("", around, machine).error().code, ErrorCode::kNotFound);

  touch(machine);
  EXPECT_EQ(find_context("", around, machine).value(), machine);
  const std::string personal = folder / "home/.config/skerry/context.toml";
  touch(personal);
  EXPECT_EQ(find_context("", around, machine).value(), personal);
  around.variables["XDG_CONFIG_HOME"] = folder / "config";
  EXPECT_EQ(find_context("", around, machine).value(), machine);
  around.variables["SKERRY_CONTEXT"] = "given.toml";
  EXPECT_EQ(find_context("", around, machine).value(), "given.toml");
  EXPECT_EQ(find_context("flag.toml", around, machine).value(), "flag.toml");
}

}  // namespace
}  // namespace skerry::cli
