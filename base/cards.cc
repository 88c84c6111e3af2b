// SPDX-License-Identifier: Apache-2.0
#include "base/cards.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>

#include "base/cuda_library.h"
#include "base/log.h"
#include "base/system_error.h"
#include "base/text.h"
#include "base/unique_fd.h"

namespace skerry {
namespace {

constexpr const char* kVisible = "CUDA_VISIBLE_DEVICES";
constexpr const char* kUseCpu = "to train on the CPU instead, set CUDA_VISIBLE_DEVICES to nothing";
constexpr int kNoDevice = 100;  // CUDA_ERROR_NO_DEVICE
constexpr int kStub = 34;  // CUDA_ERROR_STUB_LIBRARY: the library of a toolkit, without a driver
constexpr int kCapabilityMajor = 75, kCapabilityMinor = 76;

std::vector<std::string> split(const std::string& words, char between) {
  std::vector<std::string> parts;
  std::istringstream in(words);
  for (std::string part; std::getline(in, part, between);) parts.push_back(part);
  return parts;
}

// ---- The child --------------------------------------------------------------

// Its words: a line each, fields between tabs; "done" says that nothing is
// missing.
class Report {
 public:
  explicit Report(int out) : out_(out) {}
  void line(const std::vector<std::string>& fields) {
    for (const std::string& field : fields) {
      for (const char c : field) words_ += c < ' ' ? ' ' : c;
      words_ += '\t';
    }
    words_.back() = '\n';
  }
  [[noreturn]] void send() {
    std::size_t sent = 0;
    while (sent < words_.size()) {
      const ssize_t wrote = ::write(out_, words_.data() + sent, words_.size() - sent);
      if (wrote < 0 && errno != EINTR) break;
      if (wrote > 0) sent += static_cast<std::size_t>(wrote);
    }
    ::_exit(0);
  }

 private:
  int out_;
  std::string words_;
};

std::string identifier(const char* prefix, const std::array<unsigned char, 16>& uuid) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string words = prefix;
  for (std::size_t i = 0; i < uuid.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) words += '-';
    words += kDigits[uuid[i] >> 4];
    words += kDigits[uuid[i] & 15];
  }
  return words;
}

// The driver, which remembers what it refused.
class Cuda {
 public:
  explicit Cuda(const std::string& library) : library_(library) {}
  const CudaLibrary& library() const { return library_; }

  void tell(Report& report) {
    int count = 0;
    const int begun = call("cuInit", 0U);
    if (begun == kNoDevice) return report.line({"done"});
    if (begun == kStub) return report.line({"missing", "libcuda.so.1 is a toolkit's stub"});
    if (begun != 0 || call("cuDeviceGetCount", &count) != 0) return report.line({"failed", why()});
    for (int i = 0; i < count; ++i) {
      if (!tell_card(report, i)) report.line({"bad", std::to_string(i), why()});
    }
    report.line({"done"});
  }

 private:
  bool tell_card(Report& report, int index) {
    int device = 0, major = 0, minor = 0;
    std::array<char, 128> name{};
    std::array<unsigned char, 16> card{}, instance{};
    std::size_t bytes = 0;
    const bool told =
        call("cuDeviceGet", &device, index) == 0 &&
        call("cuDeviceGetName", name.data(), static_cast<int>(name.size()), device) == 0 &&
        call("cuDeviceGetUuid", card.data(), device) == 0 &&
        call("cuDeviceTotalMem_v2", &bytes, device) == 0 &&
        call("cuDeviceGetAttribute", &major, kCapabilityMajor, device) == 0 &&
        call("cuDeviceGetAttribute", &minor, kCapabilityMinor, device) == 0;
    if (!told) return false;
    // Only the newer form knows the UUID of a MIG instance; drivers before 470
    // lack it.
    const bool is_named = std::string_view(name.data()).find(" MIG ") != std::string_view::npos;
    const bool has_newer = library_.has("cuDeviceGetUuid_v2");
    if (has_newer && call("cuDeviceGetUuid_v2", instance.data(), device) != 0) return false;
    const bool is_instance = is_named || (has_newer && instance != card);
    const std::string id = is_instance ? identifier("MIG-", instance) : identifier("GPU-", card);
    report.line({"card", name.data(), is_instance && !has_newer ? "" : id, std::to_string(bytes),
                 text(major, ".", minor)});
    return true;
  }

  template <class... Arguments>
  int call(const char* function, Arguments... arguments) {
    function_ = function;
    error_ = library_.call(function, arguments...);
    return error_;
  }

  std::string why() const {
    if (error_ == CudaLibrary::kNoFunction) return text("it has no function ", function_);
    const char* name = nullptr;
    const bool is_known = library_.call("cuGetErrorName", error_, &name) == 0 && name != nullptr;
    return text(function_, " returned ", is_known ? name : text("error ", error_));
  }

  CudaLibrary library_;
  const char* function_ = "";
  int error_ = 0;
};

// CUDA answers for the process that asks: `visible` is in place of what this
// one has.
[[noreturn]] void become_child(const std::string& library,
                               const std::optional<std::string>& visible, int out) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int null = ::open("/dev/null", O_RDWR);
  ::dup2(out, STDIN_FILENO);  // where close_range below leaves it
  ::dup2(null, STDOUT_FILENO);
  ::dup2(null, STDERR_FILENO);
  ::syscall(SYS_close_range, 3U, ~0U, 0);
  if (visible) ::setenv(kVisible, visible->c_str(), 1);
  Report report(STDIN_FILENO);
  Cuda cuda(library);
  if (cuda.library().is_there()) {
    cuda.tell(report);
  } else {
    report.line({"missing", cuda.library().why_missing()});
  }
  report.send();
}

// ---- The parent -------------------------------------------------------------

struct Answer {
  std::vector<Card> cards;
  std::vector<std::string> bad;  // what CUDA said of each card that it does not describe
  std::string missing;           // why the library cannot be loaded; empty: it can
};

Result<Card> parse_card(const std::vector<std::string>& fields) {
  Card card;
  if (fields.size() == 5) {
    const char* const end = fields[3].data() + fields[3].size();
    const auto [at, error] = std::from_chars(fields[3].data(), end, card.memory_bytes);
    if (error == std::errc{} && at == end) {
      card.name = fields[1];
      card.id = fields[2];
      card.capability = fields[4];
      return card;
    }
  }
  return fail(ErrorCode::kCorrupt, "a line about a card without its five fields");
}

Result<Answer> ask(const CardSearch& search, const std::optional<std::string>& visible) {
  std::array<int, 2> pipe{};
  if (::pipe2(pipe.data(), O_CLOEXEC) != 0)
    return system_error("make a pipe for", search.library, errno);
  const UniqueFd output(pipe[0]);
  UniqueFd child_output(pipe[1]);
  const pid_t child = ::fork();
  if (child < 0) return system_error("ask", search.library, errno);
  if (child == 0) become_child(search.library, visible, child_output.get());
  child_output.reset();
  std::vector<std::vector<std::string>> lines;
  const Result<int> status = read_and_wait(
      child, output.get(), search.library,
      [&](const std::string& line) { lines.push_back(split(line, '\t')); }, search.options);
  if (!status && status.error().code == ErrorCode::kTimeout) {
    return fail(ErrorCode::kTimeout, text("cannot list the cards: ", status.error().message,
                                          ", which takes a second or few where the driver is well; "
                                          "look for Xid in `dmesg`, restart "
                                          "the machine or rent another; ",
                                          kUseCpu));
  }
  if (!status) return status.error();
  Answer answer;
  for (const auto& line : lines) {
    if (line.front() == "done") return answer;
    if (line.front() == "bad") {
      answer.bad.push_back(text("CUDA device ", line.at(1), ": ", line.back()));
      continue;
    }
    if (line.front() == "missing") {
      answer.missing = line.back();
      return answer;
    }
    if (line.front() == "failed") {
      return fail(ErrorCode::kUnavailable,
                  text("cannot list the cards: ", search.library, ": ", line.back(),
                       ", where success was expected; look at `nvidia-smi` and `dmesg`, restart "
                       "the machine or rent "
                       "another; ",
                       kUseCpu));
    }
    ASSIGN_OR_RETURN(Card card, parse_card(line));
    answer.cards.push_back(std::move(card));
  }
  return fail(
      ErrorCode::kUnavailable,
      text("cannot list the cards: the process that asked ", search.library, " ended with status ",
           *status, ", where 0 was expected; reinstall the driver or rent another machine; ",
           kUseCpu));
}

// As CUDA's own readers skip them.
std::string trimmed(const std::string& entry) {
  const std::size_t begin = entry.find_first_not_of(' ');
  return begin == std::string::npos ? ""
                                    : entry.substr(begin, entry.find_last_not_of(' ') - begin + 1);
}

// How a person hides all cards. Another word that names none may be a mistake:
// CUDA is asked.
bool asks_for_cpu(const std::string& list) {
  const std::string first = trimmed(list.substr(0, list.find(',')));
  return first.empty() || first == "-1" || first == "NoDevFiles";
}

// Whether the list begins with an index or an identifier, of whatever card.
bool is_list_of_cards(const std::string& list) {
  const std::string first = trimmed(list.substr(0, list.find(',')));
  return first.starts_with("GPU-") || first.starts_with("MIG-") ||
         first.find_first_not_of("0123456789") == std::string::npos;
}

// CUDA shows a process one MIG instance at most. A daemon gives each engine
// one: it asks for each name alone.
Result<Answer> ask_for_instances(const CardSearch& search, const std::string& list) {
  Answer all;
  for (const std::string& entry : split(list, ',')) {
    const std::string name = trimmed(entry);
    ASSIGN_OR_RETURN(Answer one, ask(search, name));
    all.missing = one.missing;
    if (one.cards.empty()) break;
    const auto is_there = [&](const Card& card) { return card.id == one.cards.front().id; };
    if (name.starts_with("MIG-")) one.cards.front().id = name;
    if (std::none_of(all.cards.begin(), all.cards.end(), is_there))
      all.cards.push_back(one.cards.front());
  }
  return all;
}

// "/dev/nvidia0" where there is such a device; empty: none.
std::string card_device(const std::string& folder) {
  std::error_code error;
  for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end;
       at.increment(error)) {
    constexpr std::string_view kBefore = "nvidia";
    const std::string name = at->path().filename().string();
    const bool is_card = name.starts_with(kBefore) && name.size() > kBefore.size() &&
                         name.find_first_not_of("0123456789", kBefore.size()) == std::string::npos;
    if (is_card) return at->path().string();
  }
  return "";
}

Error hidden_card(const std::string& device, const Answer& answer, const char* list) {
  const auto words = [&]() -> std::string {
    if (!answer.missing.empty()) {
      return text(
          answer.missing,
          ", where libcuda.so.1 was expected; install the driver's libcuda, or start the container "
          "with NVIDIA_DRIVER_CAPABILITIES=compute,utility");
    }
    if (list != nullptr) {
      return text("CUDA_VISIBLE_DEVICES=", list,
                  " names none of its cards, where an index or an identifier of "
                  "`nvidia-smi -L` was expected; correct or unset it");
    }
    return "CUDA shows none, where one was expected; pass all of /dev/nvidia* into the container";
  };
  return fail(ErrorCode::kInvalid, text("this machine has a card (", device,
                                        ") that cannot be used: ", words(), "; ", kUseCpu));
}

}  // namespace

Result<std::vector<Card>> find_cards(const CardSearch& search) {
  const char* list = std::getenv(kVisible);
  if (list != nullptr && asks_for_cpu(list)) return std::vector<Card>{};
  const bool names_instances =
      list != nullptr && std::string_view(list).find("MIG-") != std::string_view::npos;
  ASSIGN_OR_RETURN(Answer answer,
                   names_instances ? ask_for_instances(search, list) : ask(search, std::nullopt));
  const auto nameless = [](const Card& card) { return card.id.empty(); };
  if (std::any_of(answer.cards.begin(), answer.cards.end(), nameless)) {
    return fail(ErrorCode::kInvalid,
                "cannot tell the MIG instances of this machine apart: its driver is older than "
                "470; install "
                "a newer one, or "
                "name each instance in CUDA_VISIBLE_DEVICES as `nvidia-smi -L` does");
  }
  for (const std::string& bad : answer.bad) {
    log_error(
        "a card does not answer and is left out; look for Xid in dmesg, restart the machine or "
        "rent another",
        {{"card", bad}});
  }
  if (answer.cards.empty() && !answer.bad.empty()) {
    return fail(ErrorCode::kUnavailable, text("cannot use any card: ", answer.bad.front(),
                                              ", where success was expected; look at `nvidia-smi` "
                                              "and `dmesg`, restart the machine or rent "
                                              "another; ",
                                              kUseCpu));
  }
  if (answer.cards.empty()) {
    if (const std::string device = card_device(search.devices); !device.empty())
      return hidden_card(device, answer, list);
    if (list != nullptr && !is_list_of_cards(list)) {
      return fail(ErrorCode::kInvalid,
                  text("CUDA_VISIBLE_DEVICES=", list,
                       " names no card: an index or an identifier of `nvidia-smi -L` was expected; "
                       "correct or unset it; ",
                       kUseCpu));
    }
  }
  return std::move(answer.cards);
}

std::string driver_version() {
  std::string version;
  std::getline(std::ifstream("/sys/module/nvidia/version"), version);
  return version.empty() ? "unknown" : version;
}

}  // namespace skerry
