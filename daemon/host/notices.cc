// SPDX-License-Identifier: Apache-2.0
#include "daemon/host/notices.h"

#include <algorithm>
#include <ctime>
#include <nlohmann/json.hpp>

#include "base/clean_text.h"
#include "base/text.h"

namespace skerry::daemon {
namespace {

using Json = nlohmann::json;

constexpr long kOk = 200;
constexpr long kNotFound = 404;
constexpr std::size_t kWordBytes = 1024;
constexpr std::size_t kShownBytes = 64;  // of what a server said, in a message
constexpr const char* kIsoTime = "%Y-%m-%dT%H:%M:%SZ";
constexpr const char* kHttpTime = "%a, %d %b %Y %H:%M:%S GMT";

Error unexpected(std::string_view platform, std::string_view expected, std::string_view found) {
  return fail(ErrorCode::kInvalid, text(platform, ": expected ", expected, ", found \"",
                                        clean_text(std::string(found), kShownBytes), '"'));
}

Error bad_status(std::string_view platform, long status) {
  return unexpected(platform, "status 200", text("status ", status));
}

// RETURNS: a string field; empty if it is absent or of another kind.
std::string string_of(const Json& object, const char* key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

Result<Duration> time_left(std::string_view platform, const std::string& time, const char* format,
                           std::int64_t unix_ms) {
  std::tm parts{};
  const char* const end = ::strptime(time.c_str(), format, &parts);
  if (end == nullptr || *end != '\0') return unexpected(platform, "a time", time);
  const std::int64_t left_ms = std::int64_t{::timegm(&parts)} * 1000 - unix_ms;
  if (left_ms <= 0 || left_ms > kNoticeMost / std::chrono::milliseconds(1)) {
    return fail(ErrorCode::kInvalid,
                text(platform, ": its deadline ", clean_text(time, kShownBytes), " is ",
                     left_ms <= 0 ? "past" : "more than an hour away",
                     ": it is ignored; check this machine's clock"));
  }
  return std::chrono::milliseconds(left_ms);
}

}  // namespace

Announced parse_aws_action(long status, std::string_view body, std::int64_t unix_ms) {
  if (status == kNotFound) return std::optional<Notice>();
  if (status != kOk) return bad_status("AWS", status);
  const Json said = Json::parse(body, nullptr, false);
  const std::string action = string_of(said, "action");
  if (action != "terminate" && action != "stop" && action != "hibernate")
    return unexpected("AWS", "an action to terminate, stop or hibernate", body);
  const std::string time = string_of(said, "time");
  ASSIGN_OR_RETURN(const Duration left, time_left("AWS", time, kIsoTime, unix_ms));
  return Notice{left, "AWS: " + action, action + " " + time};
}

Announced parse_aws_rebalance(long status, std::string_view body) {
  if (status == kNotFound) return std::optional<Notice>();
  if (status != kOk) return bad_status("AWS", status);
  const std::string time = string_of(Json::parse(body, nullptr, false), "noticeTime");
  if (time.empty()) return unexpected("AWS", "a noticeTime", body);
  return Notice{std::nullopt, "AWS: rebalance recommendation", "rebalance"};
}

Announced parse_gcp_preempted(long status, std::string_view body) {
  if (status != kOk) return bad_status("GCP", status);
  while (!body.empty() && body.back() == '\n') body.remove_suffix(1);
  if (body == "FALSE") return std::optional<Notice>();
  if (body != "TRUE") return unexpected("GCP", "TRUE or FALSE", body);
  return Notice{kGcpNotice, "GCP: preempted", "preempted"};
}

Announced parse_azure_events(long status, std::string_view body, std::string_view own_name,
                             std::int64_t unix_ms) {
  if (status != kOk) return bad_status("Azure", status);
  const Json said = Json::parse(body, nullptr, false);
  const auto events = said.is_object() ? said.find("Events") : said.end();
  if (events == said.end() || !events->is_array()) return unexpected("Azure", "Events", body);
  std::optional<Notice> nearest;
  for (const Json& event : *events) {
    const std::string type = string_of(event, "EventType");
    const bool ends = type == "Preempt" || type == "Terminate";
    if (!ends || string_of(event, "EventStatus") == "Started") continue;
    const auto resources = event.find("Resources");
    if (resources == event.end() || !resources->is_array() ||
        std::ranges::find(*resources, Json(own_name)) == resources->end())
      continue;
    ASSIGN_OR_RETURN(std::string id, parse_word(kOk, string_of(event, "EventId")));
    ASSIGN_OR_RETURN(const Duration left,
                     time_left("Azure", string_of(event, "NotBefore"), kHttpTime, unix_ms));
    if (!nearest || left < *nearest->left) nearest = Notice{left, "Azure: " + type, std::move(id)};
  }
  return nearest;
}

std::string azure_acknowledgement(const std::string& event_id) {
  return Json{{"StartRequests", {{{"EventId", event_id}}}}}.dump();
}

Result<std::string> parse_word(long status, std::string_view body) {
  if (status != kOk) return bad_status("metadata", status);
  while (!body.empty() && body.back() == '\n') body.remove_suffix(1);
  const bool is_printable = std::ranges::all_of(body, [](char c) { return c > ' ' && c <= '~'; });
  if (body.empty() || body.size() > kWordBytes || !is_printable)
    return unexpected("metadata", "a word of printable characters", body);
  return std::string(body);
}

}  // namespace skerry::daemon
