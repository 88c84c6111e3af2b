// SPDX-License-Identifier: Apache-2.0
// Captions: how they are cleaned, where they are found, and what is wrong with
// them.
#include "diffusion/formats/caption.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "diffusion/formats/read_images.h"
#include "diffusion/testing/test_images.h"

namespace skerry::diffusion {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using namespace testing;

std::string png(std::uint32_t variant) { return png_bytes(picture(8, 8, 3, variant)); }

Result<ImageSet> read(const TemporaryFolder& folder, const std::string& name,
                      CaptionChoice choice = CaptionChoice::kAuto) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Source> source, open_source(folder.path(name), choice));
  return read_images(*source, folder.path(), 8, {}, choice, nullptr, [](const Progress&) {});
}

std::vector<std::string> captions(const ImageSet& set) {
  std::vector<std::string> all;
  for (const std::uint32_t number : set.caption_of) all.push_back(set.captions[number]);
  return all;
}

// The right-hand sides are Python's text.lower().strip().
TEST(Caption, IsCleanedAsPythonDoes) {
  const std::pair<const char*, const char*> cases[] = {
      {" A Robin on SNOW\n", "a robin on snow"},
      {"\u00c4RGER \u00dcber \u00c5land", "\u00e4rger \u00fcber \u00e5land"},
      {"\u039f\u03b4\u03c5\u03c3\u03c3\u0395\u03a5\u03a3",
       "\u03bf\u03b4\u03c5\u03c3\u03c3\u03b5\u03c5\u03c2"},
      {"\u0130stanbul", "i\u0307stanbul"},
      {"\u3000\u00a0x\u2003", "x"},
      {"\u200bx", "\u200bx"},
      {" \t\r\n\x1c", ""},
      {"", ""},
  };
  for (const auto& [written, clean] : cases) {
    const Result<std::string> caption = clean_caption(written);
    ASSERT_TRUE(caption) << written;
    EXPECT_EQ(*caption, clean);
  }
}

TEST(Caption, SaysASideByAWordOfItsOwn) {
  for (const char* says :
       {"left", "the right wing", "(left)", "bright, then right.", "left-handed"})
    EXPECT_TRUE(says_side(says)) << says;
  for (const char* not_one : {"", "a bright leftover", "copyright", "righteous", "lefty", "links"})
    EXPECT_FALSE(says_side(not_one)) << not_one;
}

TEST(Caption, ThatIsNotUtf8OrTooLongIsRefused) {
  for (const std::string& bad :
       {std::string("caf\xe9"), std::string("\xed\xa0\x80"), std::string("\xc0\xaf"),
        std::string("\xf0\x9f"), std::string(kMaxCaptionBytes + 1, 'x')}) {
    const Result<std::string> caption = clean_caption(bad);
    ASSERT_FALSE(caption);
    EXPECT_EQ(caption.error().code, ErrorCode::kInvalid);
  }
}

TEST(Captions, LieBesideTheirImages) {
  const TemporaryFolder folder;
  for (const char* const name : {"in/a.png", "in/b.png", "in/c.png", "in/d.png"})
    folder.write(name, png(static_cast<std::uint32_t>(name[3])));
  folder.write("in/a.txt", "A Robin\n");
  folder.write("in/b.caption", "a wren");
  folder.write("in/c.txt", "  \n");
  folder.write("in/d.txt", "a robin");
  const auto set = read(folder, "in");
  ASSERT_TRUE(set) << set.error().message;
  EXPECT_THAT(captions(*set), ElementsAre("a robin", "a wren", "", "a robin"));
  EXPECT_THAT(set->captions, ElementsAre("", "a robin", "a wren")) << "distinct ones only";
  EXPECT_EQ(set->uncaptioned, 1U);
}

TEST(Captions, AreInMetadataOfTheFolderAndOfThoseBelow) {
  const TemporaryFolder folder;
  folder.write("in/a.png", png(1));
  folder.write("in/b.png", png(2));
  folder.write("in/birds/a.png", png(3));
  folder.write("in/b.txt", "beside it");
  folder.write("in/metadata.jsonl",
               "{\"file_name\": \"a.png\", \"text\": \"One\", \"other\": 3}\n\n"
               "{\"file_name\": \"b.png\", \"text\": \"two\"}\n");
  folder.write("in/birds/metadata.jsonl", "{\"file_name\": \"a.png\", \"text\": \"three\"}");
  const auto set = read(folder, "in");
  ASSERT_TRUE(set) << set.error().message;
  EXPECT_THAT(captions(*set), ElementsAre("one", "beside it", "three"));
}

TEST(Captions, OfBadMetadataNameTheFileAndTheLine) {
  const TemporaryFolder folder;
  folder.write("in/a.png", png(1));
  const std::string good = "{\"file_name\": \"a.png\", \"text\": \"one\"}\n";
  const std::pair<std::string, const char*> cases[] = {
      {"{\"file_name\": \"z.png\", \"text\": \"x\"}", "line 2: it names z.png, which is no image"},
      {"{\"file_name\": \"../a.png\", \"text\": \"x\"}", "line 2: it names ../a.png"},
      {"{\"text\": \"x\"}", "line 2: expected a file_name"},
      {"a.png,one", "line 2: expected an object"},
      {"{\"file_name\": \"a.png\", \"text\": 7}", "line 2: expected text to be a string"},
      {"{\"file_name\": \"a.png\", \"text\": \"caf\xe9\"}", "line 2: expected UTF-8"},
  };
  for (const auto& [line, words] : cases) {
    folder.write("in/metadata.jsonl", good + line);
    const auto set = read(folder, "in");
    ASSERT_FALSE(set) << line;
    EXPECT_EQ(set.error().code, ErrorCode::kInvalid);
    EXPECT_THAT(set.error().message, HasSubstr(std::string("metadata.jsonl ") + words));
    EXPECT_TRUE(read(folder, "in", CaptionChoice::kOff)) << "nobody asked for captions";
  }
}

TEST(Captions, ThatAreNotUtf8NameTheirFile) {
  const TemporaryFolder folder;
  folder.write("in/a.png", png(1));
  folder.write("in/a.txt", "caf\xe9");
  const auto set = read(folder, "in");
  ASSERT_FALSE(set);
  EXPECT_THAT(set.error().message, HasSubstr("a.txt: expected a caption in UTF-8"));
}

TEST(Captions, OfAWebDatasetAreFieldsOfTheSample) {
  const TemporaryFolder folder;
  folder.write("in.tar", tar_bytes({{"a.png", png(1)},
                                    {"a.txt", "From Text"},
                                    {"a.json", R"({"caption": "from json"})"},
                                    {"b.png", png(2)},
                                    {"b.json", R"({"caption": "From Caption", "text": "no"})"},
                                    {"c.json", R"({"text": "from text of json"})"},
                                    {"c.png", png(3)},
                                    {"d.png", png(4)}}));
  const auto set = read(folder, "in.tar");
  ASSERT_TRUE(set) << set.error().message;
  EXPECT_THAT(captions(*set), ElementsAre("from text", "from caption", "from text of json", ""));
  folder.write("bad.tar", tar_bytes({{"a.png", png(1)}, {"a.txt", "caf\xe9"}}));
  EXPECT_THAT(read(folder, "bad.tar").error().message, HasSubstr("a.png: expected a caption in"));
}

TEST(Captions, CanBeTheNamesOfClasses) {
  const TemporaryFolder folder;
  folder.write("in/Robin/a.png", png(1));
  folder.write("in/wren/b.png", png(2));
  folder.write("in/wren/b.txt", "not this");
  folder.write("in/c.png", png(3));
  const auto set = read(folder, "in", CaptionChoice::kClass);
  ASSERT_TRUE(set) << set.error().message;
  EXPECT_THAT(captions(*set), ElementsAre("robin", "", "wren"));
}

TEST(Captions, OfNoneAreNone) {
  const TemporaryFolder folder;
  folder.write("in/a.png", png(1));
  folder.write("in/b.png", png(2));
  const auto set = read(folder, "in");
  ASSERT_TRUE(set);
  EXPECT_THAT(set->caption_of, IsEmpty());
  EXPECT_THAT(set->captions, IsEmpty());
  EXPECT_EQ(set->uncaptioned, 0U);
}

}  // namespace
}  // namespace skerry::diffusion
