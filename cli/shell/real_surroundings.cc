// SPDX-License-Identifier: Apache-2.0
#include "cli/shell/real_surroundings.h"

#include <poll.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <iostream>
#include <thread>

#include "base/clock.h"
#include "base/programs.h"
#include "base/text.h"
#include "cli/connect/connection.h"
#include "cli/connect/context.h"
#include "cli/connect/reach.h"
#include "cli/shell/exit_code.h"

namespace skerry::cli {
namespace {

constexpr std::chrono::seconds kReachWithin{5};

// What the handler writes: only ever a pointer to bytes that stay.
std::atomic<const char*> parting_words{nullptr};

void on_interrupt(int) {
  const char* words = parting_words.load();
  [[maybe_unused]] ssize_t written = ::write(STDERR_FILENO, "\n", 1);
  if (words != nullptr) written = ::write(STDERR_FILENO, words, std::strlen(words));
  ::_exit(kExitInterrupted);
}

std::string account_name() {
  const passwd* entry = ::getpwuid(::getuid());
  return entry == nullptr ? "someone" : entry->pw_name;
}

// An account's name in the characters that the roster takes.
std::string roster_name(std::string name) {
  for (char& c : name) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    const bool plain =
        (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
    if (!plain) c = '-';
  }
  const auto first = std::find_if(name.begin(), name.end(),
                                  [](char c) { return c != '-' && c != '_' && c != '.'; });
  name.erase(name.begin(), first);
  return name.empty() ? "someone" : name.substr(0, 63);
}

class RealSurroundings final : public Surroundings {
 public:
  std::ostream& out() override { return std::cout; }
  Result<void> flush_out() override {
    errno = 0;
    if (std::cout.flush()) return {};
    const int why = errno;
    pollfd reader{.fd = STDOUT_FILENO, .events = POLLOUT, .revents = 0};
    if (::poll(&reader, 1, 0) == 1 && (reader.revents & POLLERR) != 0) return {};
    return fail(ErrorCode::kIo, text("the output could not be written",
                                     why == 0 ? "" : text(": ", std::strerror(why))));
  }
  std::ostream& err() override { return standard_error_.err(); }
  std::istream& in() override { return std::cin; }
  bool out_is_terminal() const override { return ::isatty(STDOUT_FILENO) == 1; }
  bool err_is_terminal() const override { return standard_error_.err_is_terminal(); }
  bool in_is_terminal() const override { return ::isatty(STDIN_FILENO) == 1; }
  int columns() const override { return standard_error_.columns(); }

  std::optional<std::string> environment(const std::string& name) const override {
    const char* value = std::getenv(name.c_str());
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  }
  std::int64_t unix_ms() const override { return clock_.now().unix_ms; }
  std::chrono::nanoseconds uptime() const override { return clock_.now().boot; }
  void wait(std::chrono::milliseconds duration) override { std::this_thread::sleep_for(duration); }

  Result<std::unique_ptr<AdminClient>> connect(const std::string& flag) override {
    ASSIGN_OR_RETURN(const std::string path, find_context(flag, *this));
    return open_connection(path, clock_);
  }

  Result<std::unique_ptr<Fleet>> connect_fleet(const std::string& flag,
                                               const std::string& from) override {
    ASSIGN_OR_RETURN(const std::string path, find_context(flag, *this));
    return open_fleet(path, from, clock_);
  }

  Result<LoggedIn> login(const std::string& token, const std::string& name,
                         const std::string& path) override {
    return enrol_person(token, roster_name(name.empty() ? account_name() : name), path, clock_);
  }

  Result<std::chrono::nanoseconds> reach(const std::string& url) override {
    return cli::reach(url, kReachWithin);
  }

  Result<std::string> find_program(const std::string& name) const override {
    if (name == "skerry-engine") {
      const std::string chosen = environment("SKERRY_ENGINE").value_or("");
      if (!chosen.empty()) {
        if (::access(chosen.c_str(), X_OK) == 0) return chosen;
        return fail(ErrorCode::kNotFound,
                    text("SKERRY_ENGINE names ", chosen, ", which cannot be run"));
      }
    }
    return find_executable(name, environment("PATH").value_or(""));
  }
  using Surroundings::run_program;
  Result<int> run_program(const std::vector<std::string>& words, const OnLine& on_line,
                          const RunOptions& options) override {
    return run_and_read(words, on_line, options);
  }
  Result<std::vector<Card>> cards() override { return find_cards(); }
  std::string driver() const override { return driver_version(); }
  Result<int> become_program(const std::vector<std::string>& words) override {
    std::cout.flush();
    return replace_process(words);
  }

  void set_parting_words(const std::string& words) override {
    said_.push_back(words);  // the old ones stay: the handler may be reading them
    parting_words = words.empty() ? nullptr : said_.back().c_str();
  }

 private:
  SystemClock clock_;
  StandardError standard_error_;
  std::deque<std::string> said_;
};

}  // namespace

std::unique_ptr<Surroundings> real_surroundings() {
  std::signal(SIGINT, on_interrupt);
  std::signal(SIGPIPE, SIG_IGN);  // a closed pipe shows as a failed stream
  return std::make_unique<RealSurroundings>();
}

}  // namespace skerry::cli
