// SPDX-License-Identifier: Apache-2.0
// Everything outside the program that a command may touch, handed in by main or
// by a test: streams, terminal, time, environment, other programs and the
// connection. Thread rule: one thread.
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
  virtual std::ostream& out() = 0;   // what a script reads
  std::ostream& err() override = 0;  // what a person reads: progress, questions, errors
  virtual std::istream& in() = 0;
  virtual bool out_is_terminal() const = 0;
  virtual bool in_is_terminal() const = 0;

  virtual std::optional<std::string> environment(const std::string& name) const = 0;
  virtual std::int64_t unix_ms() const = 0;
  virtual void wait(std::chrono::milliseconds duration) = 0;

  // Connects with the context file `flag`, or where it is empty, the one that
  // the search finds (context.h).
  virtual Result<std::unique_ptr<AdminClient>> connect(const std::string& flag) = 0;
  // Connects to the nodes themselves (fleet.h): `from` names one, or is empty:
  // the coordinator hands on what they say.
  virtual Result<std::unique_ptr<Fleet>> connect_fleet(const std::string& flag,
                                                       const std::string& from) = 0;
  // Enrols this person with a token and writes the context file; returns its
  // path and the role that was granted.
  struct LoggedIn {
    std::string path;
    std::string role;
    std::string name;
  };
  virtual Result<LoggedIn> login(const std::string& token, const std::string& name,
                                 const std::string& path) = 0;

  // How long a TCP connection to tcp://HOST:PORT takes (reach.h).
  virtual Result<std::chrono::nanoseconds> reach(const std::string& url) = 0;

  // The full path of a program: beside this one first, then in PATH. kNotFound.
  virtual Result<std::string> find_program(const std::string& name) const = 0;
  // Runs a program to its end, handing over each line of its standard output;
  // its standard error goes to ours.
  virtual Result<int> run_program(const std::vector<std::string>& words, const OnLine& on_line,
                                  const RunOptions& options) = 0;
  Result<int> run_program(const std::vector<std::string>& words, const OnLine& on_line) {
    return run_program(words, on_line, {});
  }
  // The cards that CUDA shows here, and the version of their driver
  // (base/cards.h).
  virtual Result<std::vector<Card>> cards() = 0;
  virtual std::string driver() const = 0;
  // Becomes the program; returns only on failure.
  virtual Result<int> become_program(const std::vector<std::string>& words) = 0;

  // Printed to standard error if the person interrupts from now on; empty:
  // nothing.
  virtual void set_parting_words(const std::string& words) = 0;
};

}  // namespace skerry::cli
