// SPDX-License-Identifier: Apache-2.0
#include "cli/run/run_log.h"

#include <filesystem>
#include <fstream>
#include <map>

#include "base/system_error.h"
#include "base/text.h"
#include "cli/run/follow_run.h"
#include "cli/run/run_history.h"
#include "cli/shell/exit_code.h"
#include "cli/shell/patience.h"
#include "storage/folder_lock.h"
#include "storage/tensorboard_file.h"

namespace skerry::cli {
namespace {

namespace fs = std::filesystem;

// What is in the folder, and the files that it goes on in.
class RunLog {
 public:
  RunLog(std::string folder, std::string run)
      : folder_(std::move(folder)), path_(folder_ + "/history.jsonl"), run_(std::move(run)) {}

  // Reads what an earlier call wrote. A last line without an end is cut off:
  // that call was interrupted.
  Result<void> open() {
    std::error_code error;
    fs::create_directories(folder_, error);
    if (error) return system_error("make the folder", folder_, error.value());
    std::ifstream in(path_, std::ios::binary);
    std::uintmax_t whole = 0;
    std::string line;
    for (std::size_t number = 1; std::getline(in, line) && !in.eof(); ++number) {
      TRY(read_line(line, number));
      whole += line.size() + 1;
    }
    in.close();
    if (fs::exists(path_)) fs::resize_file(path_, whole, error);
    if (error) return system_error("cut", path_, error.value());
    lines_.open(path_, std::ios::binary | std::ios::app);
    if (!lines_) return system_error("write", path_, errno);
    return {};
  }

  std::uint64_t last(std::uint32_t expert) const {
    const auto found = last_.find(expert);
    return found == last_.end() ? 0 : found->second;
  }
  // Whether the expert's last point is of that time.
  bool has(std::uint32_t expert, std::int64_t unix_ms) const {
    const auto found = last_time_.find(expert);
    return found != last_time_.end() && found->second == unix_ms;
  }
  std::size_t points() const { return points_; }

  // TensorBoard's file first: what is in it twice, it shows once.
  Result<void> add(std::uint32_t expert, const pb::HistoryPoint& point) {
    auto curve = curves_.find(expert);
    const double seconds = static_cast<double>(point.unix_ms()) / 1000;
    if (curve == curves_.end()) {
      ASSIGN_OR_RETURN(
          auto file, storage::TensorBoardFile::create(text(folder_, "/expert-", expert), seconds));
      curve = curves_.emplace(expert, std::move(file)).first;
    }
    std::vector<std::pair<std::string, double>> scalars{{"loss", point.loss()},
                                                        {"gradient_norm", point.gradient_norm()}};
    if (point.train_seconds() > 0)
      scalars.emplace_back("samples_per_second", samples_per_second(point));
    TRY(curve->second.add(point.step(), seconds, scalars));
    Json line = to_json(expert, point);
    line["run"] = run_;
    lines_ << line.dump() << '\n' << std::flush;
    if (!lines_) return system_error("write", path_, errno);
    last_[expert] = point.number();
    last_time_[expert] = point.unix_ms();
    ++points_;
    return {};
  }

 private:
  Result<void> read_line(const std::string& line, std::size_t number) {
    const Json point = Json::parse(line, nullptr, false);
    const auto has = [&](const char* key, auto is) {
      return point.is_object() && point.contains(key) && (point[key].*is)();
    };
    if (!has("run", &Json::is_string) || !has("expert", &Json::is_number_unsigned) ||
        !has("number", &Json::is_number_unsigned)) {
      return fail(ErrorCode::kCorrupt,
                  text(path_, ":", number, ": expected a point of `skerry run log`, found \"",
                       line.substr(0, 40), "\"; name another folder"));
    }
    if (const std::string run = point["run"]; run != run_) {
      return fail(ErrorCode::kConflict, text(folder_, " has the log of run ", run, ", not of ",
                                             run_, ": name another folder"));
    }
    last_[point["expert"]] = point["number"];
    ++points_;
    return {};
  }

  std::string folder_, path_, run_;
  std::ofstream lines_;
  std::map<std::uint32_t, std::uint64_t> last_;      // numbers, by expert
  std::map<std::uint32_t, std::int64_t> last_time_;  // of what this call wrote
  std::map<std::uint32_t, storage::TensorBoardFile> curves_;
  std::size_t points_ = 0;
};

Result<void> add_new(Command& command, const pb::RunInfo& run, RunLog& log) {
  for (const pb::ExpertInfo& expert : run.experts()) {
    if (log.has(expert.index(), expert.committed_unix_ms())) continue;
    TRY(each_point(command, run.id(), expert.index(), log.last(expert.index()),
                   [&](const pb::HistoryPoint& point) { return log.add(expert.index(), point); }));
  }
  return {};
}

}  // namespace

Result<int> log_run(Command& command, const std::string& run, const LogOptions& options) {
  ASSIGN_OR_RETURN(const pb::RunInfo shown,
                   one_run(command, named(&pb::AdminRequest::mutable_run_show, run)));
  ASSIGN_OR_RETURN(const UniqueFd lock,
                   storage::lock_folder(options.folder,
                                        text("another `skerry run log` writes to ", options.folder,
                                             ": stop it, or name another folder")));
  RunLog log(options.folder, shown.id());
  TRY(log.open());
  const std::size_t before = log.points();
  TRY(add_new(command, shown, log));
  int status = kExitOk;
  if (options.watch) {
    ASSIGN_OR_RETURN(status, follow_run(command, run, [&](const pb::RunInfo& now) -> Result<void> {
                       const Result<void> added = add_new(command, now, log);
                       return added || may_pass(added.error()) ? Result<void>() : added;
                     }));
  }
  command.tell(text(options.folder, ": ", log.points(), " points of ", shown.experts_size(),
                    " experts, ", log.points() - before, " of them new"));
  return status;
}

}  // namespace skerry::cli
