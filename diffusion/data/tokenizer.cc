// SPDX-License-Identifier: Apache-2.0
#include "diffusion/data/tokenizer.h"

#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/programs.h"
#include "base/system_error.h"
#include "base/text.h"
#include "base/unique_fd.h"

namespace skerry::diffusion {
namespace {

constexpr const char* kProgram = "skerry-tokenize";
constexpr std::size_t kGroup = 4096;             // texts that are asked for at once
constexpr std::uint32_t kMostIds = 1U << 20;     // of a text
constexpr std::uint32_t kDefaultExtraIds = 100;  // as in transformers
constexpr std::uint32_t kMostExtraIds = 100'000;

// As tokenizer_config.json beside the model says.
Result<std::uint32_t> extra_ids_of(const std::string& model) {
  const std::string path =
      (std::filesystem::path(model).parent_path() / "tokenizer_config.json").string();
  std::ifstream file(path);
  if (!file) return kDefaultExtraIds;
  const auto json = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return fail(ErrorCode::kInvalid, text(path, " is not a JSON object"));
  const auto found = json.find("extra_ids");
  if (found == json.end() || found->is_null()) return kDefaultExtraIds;
  if (!found->is_number_unsigned() || found->get<std::uint64_t>() > kMostExtraIds) {
    return fail(ErrorCode::kInvalid, text(path, ": extra_ids: expected 0 to ", kMostExtraIds,
                                          ", found ", found->dump()));
  }
  return found->get<std::uint32_t>();
}

std::string_view bytes_of(const std::uint32_t& number) {
  return {reinterpret_cast<const char*>(&number), sizeof number};
}

}  // namespace

// The program; its standard input and output are one socket. It reads a whole
// group before it answers, so that neither side waits for the other to read.
struct Tokenizer::Child {
  pid_t process = -1;
  UniqueFd socket;
  std::string model;

  ~Child() {
    socket.reset();  // the program ends with its input
    while (process > 0 && ::waitpid(process, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  Result<void> start(const std::vector<std::string>& words) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
      return system_error("make a socket for", kProgram, errno);
    socket = UniqueFd(ends[0]);
    const UniqueFd theirs(ends[1]);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, theirs.get(), STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, theirs.get(), STDOUT_FILENO);
    const int error = ::posix_spawn(&process, words.front().c_str(), &actions, nullptr,
                                    as_arguments(words).data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    if (error != 0) return system_error("run", words.front(), error);
    return {};
  }
  // A model that cannot be read is the likeliest reason. The program has said
  // it on standard error.
  Error ended() const {
    return fail(ErrorCode::kInvalid, text(kProgram, " ended while it read ", model,
                                          ": expected the SentencePiece model of the encoder"));
  }
  Result<void> send(std::string_view bytes) const {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent < 0 && errno == EINTR) continue;
      if (sent <= 0) return ended();
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    }
    return {};
  }
  Result<void> receive(void* to, std::size_t bytes) const {
    for (std::size_t done = 0; done < bytes;) {
      const ssize_t got = ::read(socket.get(), static_cast<char*>(to) + done, bytes - done);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) return ended();
      done += static_cast<std::size_t>(got);
    }
    return {};
  }
};

Tokenizer::Tokenizer(std::unique_ptr<Child> child) : child_(std::move(child)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Result<Tokenizer> Tokenizer::open(const std::string& model) {
  ASSIGN_OR_RETURN(const std::uint32_t extra_ids, extra_ids_of(model));
  const char* const path = std::getenv("PATH");
  ASSIGN_OR_RETURN(const std::string program,
                   find_executable(kProgram, path == nullptr ? "" : path));
  auto child = std::make_unique<Child>();
  child->model = model;
  TRY(child->start({program, model, "--extra-ids", text(extra_ids)}));
  Tokenizer tokenizer(std::move(child));
  const std::vector<std::string> nothing{""};
  TRY(tokenizer.encode(nothing));  // so that a bad model is found now
  return tokenizer;
}

Result<std::vector<std::vector<std::int32_t>>> Tokenizer::encode(
    std::span<const std::string> texts) {
  std::vector<std::vector<std::int32_t>> all;
  all.reserve(texts.size());
  for (std::size_t begin = 0; begin < texts.size(); begin += kGroup) {
    const auto group = texts.subspan(begin, std::min(kGroup, texts.size() - begin));
    std::string asked(bytes_of(static_cast<std::uint32_t>(group.size())));
    for (const std::string& each : group) {
      asked += bytes_of(static_cast<std::uint32_t>(each.size()));
      asked += each;
    }
    TRY(child_->send(asked));
    for (std::size_t i = 0; i < group.size(); ++i) {
      std::uint32_t count = 0;
      TRY(child_->receive(&count, sizeof count));
      if (count == 0 || count > kMostIds) return child_->ended();
      std::vector<std::int32_t> ids(count);
      TRY(child_->receive(ids.data(), count * sizeof(std::int32_t)));
      all.push_back(std::move(ids));
    }
  }
  return all;
}

}  // namespace skerry::diffusion
