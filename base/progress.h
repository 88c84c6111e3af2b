// SPDX-License-Identifier: Apache-2.0
// Shows the progress of long work on standard error: a bar on a terminal, a
// line for each tenth elsewhere.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <string>

namespace skerry {

// Where progress is shown.
class Terminal {
 public:
  virtual ~Terminal() = default;
  virtual std::ostream& err() = 0;
  virtual bool err_is_terminal() const = 0;
  virtual int columns() const = 0;
  virtual std::chrono::nanoseconds uptime() const = 0;  // a clock that never jumps
};

// This process's standard error.
class StandardError final : public Terminal {
 public:
  std::ostream& err() override;
  bool err_is_terminal() const override;
  int columns() const override;
  std::chrono::nanoseconds uptime() const override;
};

class Progress {
 public:
  enum class Unit { kBytes, kCount };
  Progress(Terminal& terminal, std::string what, Unit unit);
  ~Progress();  // ends the line
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  // `total` 0: unknown.
  void show(std::uint64_t done, std::uint64_t total);
  void set_what(const std::string& what);

 private:
  std::string amount(std::uint64_t value) const;
  void draw(std::uint64_t done, std::uint64_t total);

  Terminal& terminal_;
  std::string what_;
  Unit unit_;
  std::chrono::nanoseconds started_;
  std::chrono::nanoseconds drawn_{};
  std::uint64_t first_ = 0;
  bool any_ = false;
  std::uint64_t tenth_ = 0;
  std::size_t width_ = 0;
};

}  // namespace skerry
