// SPDX-License-Identifier: Apache-2.0
// skerry-tokenize: turns texts into the token ids of T5. A program of its own,
// since Debian's libsentencepiece brings a protobuf that aborts beside ours.
#include <sentencepiece_processor.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace skerry::engine {
namespace {

constexpr int kExitInvalid = 2;
constexpr std::uint32_t kMaxTexts = 1U << 16;
constexpr std::uint32_t kMaxTextBytes = 1U << 20;

class Tokenizer {
 public:
  Tokenizer(const sentencepiece::SentencePieceProcessor& model, int extra_ids) : model_(model) {
    for (const char* const name : {"<pad>", "</s>", "<unk>"}) {
      if (const int id = model.PieceToId(name); model.IdToPiece(id) == name) special_[name] = id;
    }
    // The last id is <extra_id_0>.
    for (int i = 0; i < extra_ids; ++i) {
      special_["<extra_id_" + std::to_string(i) + ">"] = model.GetPieceSize() + extra_ids - 1 - i;
    }
  }

  // A special token may stand in a text. The parts between are texts of their
  // own.
  std::optional<std::vector<std::int32_t>> encode(std::string_view text) const {
    std::vector<std::int32_t> ids;
    std::size_t begin = 0;
    for (std::size_t at = text.find('<'); at != std::string_view::npos; at = text.find('<', at)) {
      const std::size_t end = text.find('>', at);
      if (end == std::string_view::npos) break;
      const auto found = special_.find(text.substr(at, end + 1 - at));
      if (found == special_.end()) {
        ++at;
        continue;
      }
      if (!append(text.substr(begin, at - begin), ids)) return std::nullopt;
      ids.push_back(found->second);
      begin = at = end + 1;
    }
    if (!append(text.substr(begin), ids)) return std::nullopt;
    ids.push_back(model_.eos_id());
    return ids;
  }

 private:
  bool append(std::string_view part, std::vector<std::int32_t>& ids) const {
    // The one space of Unicode that SentencePiece takes for a letter;
    // transformers' tokenizer does not.
    constexpr std::string_view kNextLine = "\xc2\x85";
    std::string spaced(part);
    for (std::size_t at = 0; (at = spaced.find(kNextLine, at)) != std::string::npos;)
      spaced.replace(at, kNextLine.size(), " ");
    std::vector<int> found;
    if (!model_.Encode(spaced, &found).ok()) return false;
    ids.insert(ids.end(), found.begin(), found.end());
    return true;
  }

  const sentencepiece::SentencePieceProcessor& model_;
  std::map<std::string, std::int32_t, std::less<>> special_;
};

bool read(void* to, std::size_t bytes) { return std::fread(to, 1, bytes, stdin) == bytes; }

int broken(const char* what) {
  std::fprintf(stderr, "skerry-tokenize: %s; --help explains the form\n", what);
  return kExitInvalid;
}

// Answers one group.
int answer(const Tokenizer& tokenizer, std::uint32_t count) {
  if (count > kMaxTexts) return broken("expected at most 65,536 texts in a group");
  std::vector<std::string> texts(count);
  for (std::string& text : texts) {
    std::uint32_t bytes = 0;
    if (!read(&bytes, sizeof bytes)) return broken("the input ended within a group");
    if (bytes > kMaxTextBytes) return broken("expected a text of at most 1 MiB");
    text.resize(bytes);
    if (!read(text.data(), bytes)) return broken("the input ended within a text");
  }
  for (const std::string& text : texts) {
    const auto ids = tokenizer.encode(text);
    if (!ids) return broken("SentencePiece could not encode a text");
    const auto length = static_cast<std::uint32_t>(ids->size());
    std::fwrite(&length, sizeof length, 1, stdout);
    std::fwrite(ids->data(), sizeof(std::int32_t), ids->size(), stdout);
  }
  return std::fflush(stdout) == 0 ? 0 : 1;
}

int run(const std::string& path, int extra_ids) {
  sentencepiece::SentencePieceProcessor model;
  if (const auto status = model.Load(path); !status.ok()) {
    std::fprintf(stderr, "skerry-tokenize: %s: expected a SentencePiece model: %s\n", path.c_str(),
                 status.ToString().c_str());
    return kExitInvalid;
  }
  if (model.eos_id() < 0) return broken("expected a model with the token </s>");
  const Tokenizer tokenizer(model, extra_ids);
  for (std::uint32_t count = 0; read(&count, sizeof count);) {
    if (const int status = answer(tokenizer, count); status != 0) return status;
  }
  return 0;
}

}  // namespace
}  // namespace skerry::engine

int main(int argc, char** argv) {
  CLI::App app(
      "Turns texts into the token ids of T5's tokenizer. skerry-engine starts it for ingest "
      "--text-encoder.",
      "skerry-tokenize");
  std::string model;
  int extra_ids = 100;
  app.add_option("MODEL", model, "A SentencePiece model, such as spiece.model")->required();
  app.add_option("--extra-ids", extra_ids, "How many tokens <extra_id_0> … follow the model's own")
      ->check(CLI::Range(0, 100000))
      ->capture_default_str();
  app.footer(
      "Reads groups of texts from standard input until it ends, and answers each on standard\n"
      "output once it has read it all. Numbers are of 32 bits, little-endian; a text may hold any\n"
      "character.\n"
      "  group   the number of texts (at most 65536); of each its bytes (at most 1 MiB), then the\n"
      "          text in UTF-8\n"
      "  answer  of each text the number of its ids, then the ids. The last one is </s>\n\n"
      "Examples:\n"
      "  printf '\\1\\0\\0\\0\\6\\0\\0\\0a bird' | skerry-tokenize spiece.model | od -An -td4\n"
      "  skerry-tokenize spiece.model --extra-ids 0 <groups >ids");
  CLI11_PARSE(app, argc, argv);
  return skerry::engine::run(model, extra_ids);
}
