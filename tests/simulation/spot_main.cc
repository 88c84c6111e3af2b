// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/spot_main.h"

#include <charconv>
#include <cmath>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string_view>

#include "base/text.h"
#include "tests/simulation/spot_run.h"

namespace skerry::simulation {
namespace {

struct Words {
  std::string trace, speeds, samples;
  double experts = 8, notice = 0, reload = 20, round = 60, slots = 1, cards = 1;
  double hours = 0;  // 0: as the trace says
  bool tells = false;
};

Result<double> number_in(const std::string& option, const std::string& word, double least,
                         double most) {
  double number = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  if (error != std::errc() || end != word.data() + word.size() ||
      !(number >= least && number <= most))
    return fail(ErrorCode::kInvalid, text(option, ": expected a number from ", least, " to ", most,
                                          ", found \"", word, "\"; --help says what it means"));
  return number;
}

Result<Words> parse(std::span<const std::string> arguments) {
  Words words;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& option = arguments[i];
    if (option == "--all") {
      words.tells = true;
      continue;
    }
    const bool is_last = i + 1 == arguments.size();
    const std::string value = is_last ? "" : arguments[++i];
    const auto number = [&](double& to, double least, double most) -> Result<void> {
      ASSIGN_OR_RETURN(to, number_in(option, value, least, most));
      return {};
    };
    const auto whole = [&](double& to, double least, double most) -> Result<void> {
      TRY(number(to, least, most));
      if (to == std::floor(to)) return {};
      return fail(ErrorCode::kInvalid,
                  text(option, ": expected a whole number, found \"", value, "\""));
    };
    if (option == "--trace") {
      words.trace = value;
    } else if (option == "--speeds") {
      words.speeds = value;
    } else if (option == "--samples") {
      words.samples = value;
    } else if (option == "--experts") {
      TRY(whole(words.experts, 1, 64));
    } else if (option == "--slots") {
      TRY(whole(words.slots, 1, 8));
    } else if (option == "--cards") {
      TRY(whole(words.cards, 0, 8));
    } else if (option == "--notice") {
      TRY(number(words.notice, 0, 3600));
    } else if (option == "--reload") {
      TRY(number(words.reload, 1, 120));
    } else if (option == "--round") {
      TRY(number(words.round, 1, 3600));
    } else if (option == "--hours") {
      TRY(number(words.hours, 0.001, 1000));
    } else {
      return fail(ErrorCode::kInvalid,
                  text("expected an option of --trace, found \"", option, "\"; --help lists them"));
    }
    if (value.empty())
      return fail(ErrorCode::kInvalid, text(option, ": expected a value, found none"));
  }
  return words;
}

Result<std::string> content_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream content;
  content << file.rdbuf();
  if (!file || content.fail())
    return fail(ErrorCode::kNotFound,
                text(path, ": expected a file that can be read; give its path"));
  return std::move(content).str();
}

Result<SpotOptions> options_of(const Words& words) {
  SpotOptions options;
  ASSIGN_OR_RETURN(const std::string trace, content_of(words.trace));
  ASSIGN_OR_RETURN(options.trace, parse_spot_trace(trace, words.trace));
  if (!words.speeds.empty()) {
    ASSIGN_OR_RETURN(const std::string speeds, content_of(words.speeds));
    ASSIGN_OR_RETURN(options.speeds, parse_spot_speeds(speeds, words.speeds));
  }
  const auto time = [](double seconds) {
    return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
  };
  if (words.hours > 0) options.trace = options.trace.until(time(words.hours * 3600));
  options.experts = static_cast<std::uint32_t>(words.experts);
  options.slots = static_cast<std::uint32_t>(words.slots);
  options.cards_per_expert = static_cast<std::uint32_t>(words.cards);
  options.notice = time(words.notice);
  options.costs = options.costs.scaled(words.reload);
  options.round_seconds = words.round;
  options.keep = words.tells ? Trace::Keep::kAll : Trace::Keep::kNothing;
  return options;
}

Result<void> write_samples(const SpotReport& report, const std::string& path) {
  std::ofstream file(path);
  file << "seconds,machines,could_train,train\n";
  for (const SpotSample& sample : report.samples)
    file << sample.at / std::chrono::seconds(1) << ',' << sample.machines << ',' << sample.could
         << ',' << sample.training << '\n';
  file.flush();
  if (file) return {};
  return fail(ErrorCode::kIo, text(path, ": expected a file that can be written; give another"));
}

Result<void> run(std::span<const std::string> arguments) {
  ASSIGN_OR_RETURN(const Words words, parse(arguments));
  ASSIGN_OR_RETURN(const SpotOptions options, options_of(words));
  const auto tell = [](const std::string& line) { std::cout << line << "\n"; };
  const SpotReport report = words.tells ? run_spot(options, tell) : run_spot(options);
  if (words.tells)
    std::cout << report.commits << " commits, answered after " << report.answer_seconds << " s\n";
  if (!words.samples.empty()) TRY(write_samples(report, words.samples));
  std::cout << json_of(report) << "\n";
  return {};
}

}  // namespace

int run_spot_main(std::span<const std::string> arguments) {
  const Result<void> outcome = run(arguments);
  if (outcome) return 0;
  std::cerr << "skerry-simulate: " << outcome.error().message << "\n";
  return 2;
}

}  // namespace skerry::simulation
