// SPDX-License-Identifier: Apache-2.0
// The corpus through the same functions that libFuzzer calls, in every build. A
// file's name says what it is for: good-… is accepted, bad-… is refused,
// found-… once broke something.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/fuzz/targets.h"

namespace skerry::fuzz {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> corpus(std::string_view target) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(fs::path(FUZZ_CORPUS) / target))
    files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

std::string read(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

class Corpus : public ::testing::TestWithParam<Target> {};

TEST_P(Corpus, IsJudgedAsItsFilesAreNamed) {
  std::size_t good = 0;
  for (const fs::path& path : corpus(GetParam().name)) {
    SCOPED_TRACE(path);
    const std::string name = path.filename().string();
    const Verdict verdict = GetParam().run(read(path));
    if (name.starts_with("good-")) {
      ++good;
      EXPECT_EQ(verdict, Verdict::kAccepted);
    } else if (name.starts_with("bad-")) {
      EXPECT_EQ(verdict, Verdict::kRefused);
    } else {
      EXPECT_TRUE(name.starts_with("found-")) << "a name that says nothing";
    }
  }
  EXPECT_GT(good, 0U) << "no seed that reaches what lies behind the checks";
}

// Cheap neighbours of every seed: cut short anywhere, and one byte turned over.
TEST_P(Corpus, SurvivesCutsAndFlips) {
  for (const fs::path& path : corpus(GetParam().name)) {
    SCOPED_TRACE(path);
    std::string bytes = read(path);
    const std::size_t step = bytes.size() / 200 + 1;
    for (std::size_t i = 0; i < bytes.size(); i += step) {
      GetParam().run(std::string_view(bytes).substr(0, i));
      bytes[i] = static_cast<char>(~bytes[i]);
      GetParam().run(bytes);
      bytes[i] = static_cast<char>(~bytes[i]);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Fuzz, Corpus, ::testing::ValuesIn(targets().begin(), targets().end()),
                         [](const auto& target) { return std::string(target.param.name); });

}  // namespace
}  // namespace skerry::fuzz
