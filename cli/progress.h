// How far a long piece of work is: a bar on a terminal, a line for each tenth elsewhere. On standard error.
#pragma once

#include <cstdint>
#include <string>

#include "cli/surroundings.h"

namespace skerry::cli {

class Progress {
 public:
  enum class Unit { kBytes, kCount };
  Progress(Surroundings& around, std::string what, Unit unit);
  ~Progress();  // ends the line
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  // `total` 0: not known.
  void show(std::uint64_t done, std::uint64_t total);
  void set_what(const std::string& what);

 private:
  std::string amount(std::uint64_t value) const;
  void draw(std::uint64_t done, std::uint64_t total);

  Surroundings& around_;
  std::string what_;
  Unit unit_;
  std::chrono::nanoseconds started_;
  std::chrono::nanoseconds drawn_{};
  std::uint64_t first_ = 0;
  bool any_ = false;
  std::uint64_t tenth_ = 0;
  std::size_t width_ = 0;
};

}  // namespace skerry::cli
