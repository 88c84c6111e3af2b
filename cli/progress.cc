#include "cli/progress.h"

#include <algorithm>
#include <ostream>

#include "base/text.h"

namespace skerry::cli {
namespace {

constexpr std::chrono::milliseconds kRedraw{100};
constexpr std::size_t kBar = 24;

}  // namespace

Progress::Progress(Surroundings& around, std::string what, Unit unit)
    : around_(around), what_(std::move(what)), unit_(unit), started_(around.uptime()) {}

Progress::~Progress() {
  if (width_ > 0) around_.err() << std::endl;
}

void Progress::set_what(const std::string& what) {
  if (what == what_) return;
  if (width_ > 0) around_.err() << std::endl;
  what_ = what;
  width_ = 0;
  tenth_ = 0;
  any_ = false;
  started_ = around_.uptime();
}

std::string Progress::amount(std::uint64_t value) const {
  return unit_ == Unit::kBytes ? human_bytes(value) : text(value);
}

void Progress::show(std::uint64_t done, std::uint64_t total) {
  if (!any_) first_ = done;
  const bool first = !any_;
  any_ = true;
  if (around_.err_is_terminal()) {
    const auto now = around_.uptime();
    if (!first && now - drawn_ < kRedraw && (total == 0 || done < total)) return;
    drawn_ = now;
    draw(done, total);
    return;
  }
  const std::uint64_t tenth = total == 0 ? 0 : done * 10 / total;
  if (!first && tenth <= tenth_) return;
  tenth_ = tenth;
  around_.err() << what_ << "  ";
  if (total > 0) around_.err() << done * 100 / total << " %  ";
  around_.err() << amount(done) << (total > 0 ? " of " + amount(total) : "") << std::endl;
}

void Progress::draw(std::uint64_t done, std::uint64_t total) {
  std::string line = what_ + "  ";
  if (total > 0) {
    const std::size_t filled = std::min<std::size_t>(kBar, done * kBar / total);
    line += text('[', std::string(filled, '#'), std::string(kBar - filled, '.'), "] ", done * 100 / total,
                 " %  ");
  }
  line += amount(done) + (total > 0 ? " of " + amount(total) : "");
  const double seconds = std::chrono::duration<double>(around_.uptime() - started_).count();
  if (seconds > 1 && done > first_) {
    const double rate = static_cast<double>(done - first_) / seconds;
    if (unit_ == Unit::kBytes) line += text("  ", human_bytes(static_cast<std::uint64_t>(rate)), "/s");
    if (total > done) {
      const auto left = static_cast<std::int64_t>(static_cast<double>(total - done) / rate);
      line += text("  ", human_duration(std::chrono::seconds(left)), " left");
    }
  }
  line = line.substr(0, static_cast<std::size_t>(std::max(20, around_.columns() - 1)));
  const std::size_t drawn = line.size();
  line.resize(std::max(width_, drawn), ' ');
  width_ = drawn;
  around_.err() << '\r' << line << std::flush;
}

}  // namespace skerry::cli
