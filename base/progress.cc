// SPDX-License-Identifier: Apache-2.0
#include "base/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <iostream>

#include "base/clock.h"
#include "base/text.h"

namespace skerry {
namespace {

constexpr std::chrono::milliseconds kRedraw{100};
constexpr std::size_t kBar = 24;

}  // namespace

std::ostream& StandardError::err() { return std::cerr; }
bool StandardError::err_is_terminal() const { return ::isatty(STDERR_FILENO) == 1; }
int StandardError::columns() const {
  winsize size{};
  const bool known = ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : 80;
}
std::chrono::nanoseconds StandardError::uptime() const { return SystemClock().now().boot; }

Progress::Progress(Terminal& terminal, std::string what, Unit unit)
    : terminal_(terminal), what_(std::move(what)), unit_(unit), started_(terminal.uptime()) {}

Progress::~Progress() {
  if (width_ > 0) terminal_.err() << std::endl;
}

void Progress::set_what(const std::string& what) {
  if (what == what_) return;
  if (width_ > 0) terminal_.err() << std::endl;
  what_ = what;
  width_ = 0;
  tenth_ = 0;
  any_ = false;
  started_ = terminal_.uptime();
}

std::string Progress::amount(std::uint64_t value) const {
  return unit_ == Unit::kBytes ? human_bytes(value) : text(value);
}

void Progress::show(std::uint64_t done, std::uint64_t total) {
  if (!any_) first_ = done;
  const bool first = !any_;
  any_ = true;
  if (terminal_.err_is_terminal()) {
    const auto now = terminal_.uptime();
    if (!first && now - drawn_ < kRedraw && (total == 0 || done < total)) return;
    drawn_ = now;
    draw(done, total);
    return;
  }
  const std::uint64_t tenth = total == 0 ? 0 : done * 10 / total;
  if (!first && tenth <= tenth_) return;
  tenth_ = tenth;
  terminal_.err() << what_ << "  ";
  if (total > 0) terminal_.err() << done * 100 / total << " %  ";
  terminal_.err() << amount(done) << (total > 0 ? " of " + amount(total) : "") << std::endl;
}

void Progress::draw(std::uint64_t done, std::uint64_t total) {
  std::string line = what_ + "  ";
  if (total > 0) {
    const std::size_t filled = std::min<std::size_t>(kBar, done * kBar / total);
    line += text('[', std::string(filled, '#'), std::string(kBar - filled, '.'), "] ",
                 done * 100 / total, " %  ");
  }
  line += amount(done) + (total > 0 ? " of " + amount(total) : "");
  const double seconds = std::chrono::duration<double>(terminal_.uptime() - started_).count();
  if (seconds > 1 && done > first_) {
    const double rate = static_cast<double>(done - first_) / seconds;
    if (unit_ == Unit::kBytes)
      line += text("  ", human_bytes(static_cast<std::uint64_t>(rate)), "/s");
    if (total > done) {
      const auto left = static_cast<std::int64_t>(static_cast<double>(total - done) / rate);
      line += text("  ", human_duration(std::chrono::seconds(left)), " left");
    }
  }
  line = line.substr(0, static_cast<std::size_t>(std::max(20, terminal_.columns() - 1)));
  const std::size_t drawn = line.size();
  line.resize(std::max(width_, drawn), ' ');
  width_ = drawn;
  terminal_.err() << '\r' << line << std::flush;
}

}  // namespace skerry
