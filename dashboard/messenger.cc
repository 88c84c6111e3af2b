// SPDX-License-Identifier: Apache-2.0
#include "dashboard/messenger.h"

#include <charconv>

#include "base/log.h"
#include "base/programs.h"
#include "base/text.h"
#include "base/toml.h"
#include "cli/ensemble/export_expert.h"
#include "cli/shell/output.h"
#include "cli/view/event_view.h"
#include "storage/files.h"

namespace skerry::dashboard {
namespace {

constexpr std::chrono::milliseconds kTick{500};  // a pause ends at most so late

Result<std::optional<std::uint64_t>> read_cursor(const std::string& path) {
  const Result<storage::MappedFile> file = storage::MappedFile::open(path);
  if (!file.has_value()) {
    if (file.error().code == ErrorCode::kNotFound) return std::optional<std::uint64_t>();
    return file.error();
  }
  const std::string_view words = file->bytes();
  std::uint64_t cursor = 0;
  const auto read = std::from_chars(words.data(), words.data() + words.size(), cursor);
  if (read.ec != std::errc() ||
      words.substr(static_cast<std::size_t>(read.ptr - words.data())) != "\n") {
    return fail(ErrorCode::kCorrupt,
                text(path,
                     ": expected the number of an event, found something else; remove the "
                     "file to send nothing of the past"));
  }
  return std::optional(cursor);
}

}  // namespace

Result<NotifyOptions> read_notify_options(const std::string& path) {
  ASSIGN_OR_RETURN(const toml::table table, read_toml(path));
  NotifyOptions options;
  for (const auto& [section, content] : table) {
    const toml::table* const keys = content.as_table();
    if (section.str() != "notify" || keys == nullptr) {
      return fail(ErrorCode::kInvalid, text(path, ": expected the section [notify] alone, found '",
                                            cli::printable(section.str()), "'"));
    }
    for (const auto& [key, value] : *keys) {
      const auto words = value.value<std::string>();
      std::string* const place = key.str() == "url"       ? &options.url
                                 : key.str() == "command" ? &options.command
                                 : key.str() == "cursor"  ? &options.cursor
                                                          : nullptr;
      if (place == nullptr || !words) {
        return fail(ErrorCode::kInvalid,
                    text(path, ": [notify] expects url, command and cursor, each in quotes; found ",
                         cli::printable(key.str())));
      }
      *place = *words;
    }
  }
  const std::string& url = options.url;
  if (!url.empty() && !url.starts_with("https://") && !url.starts_with("http://")) {
    return fail(ErrorCode::kInvalid,
                text(path, ": notify.url expects https:// or http://, found another scheme"));
  }
  if (options.any() && options.cursor.empty()) {
    return fail(ErrorCode::kInvalid, text(path,
                                          ": notify.cursor is missing: name a file, such as "
                                          "/var/lib/skerry-dashboard/cursor"));
  }
  return options;
}

Result<std::unique_ptr<Messenger>> Messenger::start(NotifyOptions options, const Clock& clock) {
  ASSIGN_OR_RETURN(const std::optional<std::uint64_t> cursor, read_cursor(options.cursor));
  return std::unique_ptr<Messenger>(new Messenger(std::move(options), clock, cursor));
}

Messenger::Messenger(NotifyOptions options, const Clock& clock, std::optional<std::uint64_t> cursor)
    : options_(std::move(options)), clock_(clock), notices_(cursor), stored_(cursor) {
  thread_ = std::thread([this] { loop(); });
}

Messenger::~Messenger() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  http_.stop();
  wake_.notify_all();
  thread_.join();
}

void Messenger::offer(const std::vector<pb::Event>& events) {
  const std::lock_guard lock(mutex_);
  notices_.offer(events);
  wake_.notify_all();
}

void Messenger::loop() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    if (notices_.cursor() && notices_.cursor() != stored_) {
      const std::uint64_t cursor = *notices_.cursor();
      lock.unlock();
      store_cursor(cursor);
      lock.lock();
    }
    const pb::Event* const due = notices_.due(clock_.now().boot);
    if (due == nullptr) {
      wake_.wait_for(lock, kTick);
      continue;
    }
    const pb::Event event = *due;
    lock.unlock();
    const Result<void> done = send(event);
    lock.lock();
    if (stopping_) return;  // it is sent again after the next start
    // A full queue may have dropped it meanwhile.
    const pb::Event* const still = notices_.due(clock_.now().boot);
    if (still == nullptr || still->number() != event.number()) continue;
    if (done.has_value()) {
      notices_.sent();
      continue;
    }
    const bool given_up = notices_.failed(clock_.now().boot);
    log_warning(given_up ? "a notice is given up" : "a notice was not sent, trying again",
                {{"event", event.number()}, {"reason", done.error().message}});
  }
}

Result<void> Messenger::send(const pb::Event& event) {
  cli::Json notice = {{"notice", notice_kind(event)}};
  notice.update(cli::event_json(event));
  const std::string body = cli::versioned(std::move(notice)).dump();
  if (!options_.url.empty()) TRY(post(body));
  if (!options_.command.empty()) TRY(run_command(body));
  return {};
}

// The URL may hold a secret, so messages name it not.
Result<void> Messenger::post(const std::string& body) {
  const Result<HttpAnswer> answer = http_.ask({.method = "POST",
                                               .url = options_.url,
                                               .headers = {"Content-Type: application/json"},
                                               .body = body,
                                               .limit = kLimit,
                                               .outward = true});
  if (!answer.has_value()) {
    const ErrorCode code = answer.error().code;
    return fail(code, code == ErrorCode::kInvalid     ? "notify.url: " + answer.error().message
                      : code == ErrorCode::kExhausted ? "notify.url answers more than 64 KiB"
                                                      : "notify.url does not answer within 10 s");
  }
  if (answer->status >= 200 && answer->status < 300) return {};
  if (answer->status >= 300 && answer->status < 400) {
    return fail(ErrorCode::kInvalid,
                text("notify.url answers ", answer->status,
                     ", a redirect, which is not followed: name the last URL"));
  }
  return fail(ErrorCode::kUnavailable,
              text("notify.url answers ", answer->status, ", expected a status from 200 to 299"));
}

Result<void> Messenger::run_command(const std::string& body) {
  ASSIGN_OR_RETURN(const int status,
                   run_and_read({options_.command}, [](const std::string&) {},
                                {.environment = {"SKERRY_NOTICE=" + body}, .limit = kLimit}));
  if (status == 0) return {};
  return fail(ErrorCode::kUnavailable,
              text(options_.command, " exits with status ", status, ", expected 0"));
}

void Messenger::store_cursor(std::uint64_t cursor) {
  stored_ = cursor;
  const Result<void> written = cli::write_text_file(options_.cursor, text(cursor, '\n'));
  if (!written.has_value()) {
    log_error("the cursor of notices cannot be stored: a restart sends some of them again",
              {{"reason", written.error().message}});
  }
}

}  // namespace skerry::dashboard
