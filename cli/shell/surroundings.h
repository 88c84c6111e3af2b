// SPDX-License-Identifier: Apache-2.0
// Everything outside the program that a command may use: streams, terminal,
// time, environment, other programs and the connection. main and tests inject
// it.
//
// THREADS: one.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/cards.h"
#include "base/programs.h"
#include "base/progress.h"
#include "base/result.h"
#include "cli/connect/admin_client.h"
#include "cli/connect/fleet.h"

namespace skerry::cli {

class Surroundings : public Terminal {
 public:
  virtual std::ostream& out() = 0;  // for scripts
  // ON FAILURE: kIo: not all that was printed is written. A reader who has gone
  // (`| head`) is no failure.
  virtual Result<void> flush_out() = 0;
  std::ostream& err() override = 0;  // for people: progress, questions, errors
  virtual std::istream& in() = 0;
  virtual bool out_is_terminal() const = 0;
  virtual bool in_is_terminal() const = 0;

  virtual std::optional<std::string> environment(const std::string& name) const = 0;
  virtual std::int64_t unix_ms() const = 0;
  virtual void wait(std::chrono::milliseconds duration) = 0;

  // Connects with the context file `flag`; if empty, with the one that the
  // search finds (context.h).
  virtual Result<std::unique_ptr<AdminClient>> connect(const std::string& flag) = 0;
  // Connects to the nodes directly (fleet.h). `from` names one node; if empty,
  // the coordinator relays the nodes' records.
  virtual Result<std::unique_ptr<Fleet>> connect_fleet(const std::string& flag,
                                                       const std::string& from) = 0;
  // Enrols this person with a token and writes the context file.
  // RETURNS: its path, and the role and name that were granted.
  struct LoggedIn {
    std::string path;
    std::string role;
    std::string name;
  };
  virtual Result<LoggedIn> login(const std::string& token, const std::string& name,
                                 const std::string& path) = 0;

  // RETURNS: how long a TCP connection to tcp://HOST:PORT takes (reach.h).
  virtual Result<std::chrono::nanoseconds> reach(const std::string& url) = 0;

  // RETURNS: the full path of a program, searched beside this one, then in
  // PATH.
  // ON FAILURE: kNotFound.
  virtual Result<std::string> find_program(const std::string& name) const = 0;
  // Runs a program to its end and calls `on_line` with each line of its
  // standard output. Its standard error goes to this program's.
  virtual Result<int> run_program(const std::vector<std::string>& words, const OnLine& on_line,
                                  const RunOptions& options) = 0;
  Result<int> run_program(const std::vector<std::string>& words, const OnLine& on_line) {
    return run_program(words, on_line, {});
  }
  // RETURNS: the cards that CUDA lists on this machine (base/cards.h). driver()
  // returns their driver's version.
  virtual Result<std::vector<Card>> cards() = 0;
  virtual std::string driver() const = 0;
  // Replaces this process by the program (exec); returns only on failure.
  virtual Result<int> become_program(const std::vector<std::string>& words) = 0;

  // Sets the text that an interrupt prints to standard error from now on;
  // empty: nothing.
  virtual void set_parting_words(const std::string& words) = 0;
};

}  // namespace skerry::cli
