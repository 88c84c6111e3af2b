// SPDX-License-Identifier: Apache-2.0
#include "daemon/host/notice_watcher.h"

#include <utility>

#include "base/log.h"
#include "base/text.h"

namespace skerry::daemon {
namespace {

using std::chrono::seconds;

constexpr Duration kFindLimit = seconds(1);
constexpr Duration kAwsEvery = seconds(5);
constexpr Duration kEvery = seconds(1);      // of the others
constexpr Duration kGcpWaits = seconds(60);  // the server answers by then
constexpr Duration kGcpSlack = seconds(5);
constexpr long kOk = 200;
constexpr long kUnauthorised = 401;
constexpr const char* kLinkLocal = "http://169.254.169.254";
constexpr const char* kGcpServer = "http://metadata.google.internal";
constexpr const char* kAwsToken = "/latest/api/token";
constexpr const char* kAwsAction = "/latest/meta-data/spot/instance-action";
constexpr const char* kAwsRebalance = "/latest/meta-data/events/recommendations/rebalance";
constexpr const char* kGcpPreempted = "/computeMetadata/v1/instance/preempted";
constexpr const char* kNoTag = "0";
constexpr const char* kAzureName =
    "/metadata/instance/compute/name?api-version=2021-02-01&format=text";
constexpr const char* kAzureEvents = "/metadata/scheduledevents?api-version=2020-07-01";

const char* name_of(Spot platform) {
  switch (platform) {
    case Spot::kAws:
      return "AWS";
    case Spot::kGcp:
      return "GCP";
    case Spot::kAzure:
      return "Azure";
    default:
      return "none";
  }
}

// Another server at the same address may answer anything.
bool is_of_google(const HttpAnswer& answer) {
  const auto flavor = answer.headers.find("metadata-flavor");
  return flavor != answer.headers.end() && flavor->second == "Google";
}

}  // namespace

NoticeWatcher::NoticeWatcher(NoticeOptions options, const Clock& clock,
                             std::function<void(NoticeReceived)> tell)
    : options_(std::move(options)), clock_(clock), tell_(std::move(tell)) {
  if (options_.spot != Spot::kOff) thread_ = std::thread([this] { watch(); });
}

NoticeWatcher::~NoticeWatcher() {
  http_.stop();
  if (thread_.joinable()) thread_.join();
}

void NoticeWatcher::acknowledge() {
  if (!may_acknowledge_.exchange(true)) http_.wake();
}

void NoticeWatcher::watch() {
  const Spot platform = options_.spot == Spot::kAuto ? find_platform() : options_.spot;
  if (platform == Spot::kOff) return;
  while (!http_.is_stopped()) {
    const Result<void> looked = look(platform);
    const bool failed_before = std::exchange(is_failing_, !looked);
    if (!looked && !failed_before && !http_.is_stopped())
      log_error("cannot read the platform's notices: " + looked.error().message);
    http_.wait(platform == Spot::kAws ? kAwsEvery : kEvery);
  }
}

Result<void> NoticeWatcher::look(Spot platform) {
  switch (platform) {
    case Spot::kAws:
      return look_aws();
    case Spot::kGcp:
      return look_gcp();
    default:
      return look_azure();
  }
}

HttpRequest NoticeWatcher::request(Spot platform, const std::string& path) const {
  std::string base = platform == Spot::kGcp ? kGcpServer : kLinkLocal;
  if (!options_.metadata.empty()) base = options_.metadata;
  HttpRequest made{.url = base + path};
  if (platform == Spot::kGcp) made.headers = {"Metadata-Flavor: Google"};
  if (platform == Spot::kAzure) made.headers = {"Metadata: true"};
  if (platform == Spot::kAws && path == kAwsToken) {
    made.method = "PUT";
    made.headers = {"X-aws-ec2-metadata-token-ttl-seconds: 21600"};
  }
  return made;
}

Spot NoticeWatcher::find_platform() {
  std::vector<HttpRequest> requests = {request(Spot::kAws, kAwsToken),
                                       request(Spot::kGcp, kGcpPreempted),
                                       request(Spot::kAzure, kAzureName)};
  for (HttpRequest& each : requests) each.limit = kFindLimit;
  const std::vector<Result<HttpAnswer>> answers = http_.ask(requests);
  const auto is_word = [](const Result<HttpAnswer>& answer) {
    return answer && parse_word(answer->status, answer->body);
  };
  Spot found = Spot::kOff;
  if (is_word(answers[0])) {
    found = Spot::kAws;
  } else if (is_word(answers[1]) && is_of_google(*answers[1])) {
    found = Spot::kGcp;
  } else if (is_word(answers[2])) {
    found = Spot::kAzure;
  }
  if (!http_.is_stopped()) {
    log_info(found == Spot::kOff ? "no cloud's metadata server answers: only signals are notices"
                                 : text("watching for notices of ", name_of(found)));
  }
  return found;
}

void NoticeWatcher::announce(const std::optional<Notice>& notice) {
  if (!notice || notice->id == announced_) return;
  announced_ = notice->id;
  may_acknowledge_ = false;
  tell_({clock_.now().boot + *notice->left, notice->what});
}

void NoticeWatcher::advise(const std::optional<Notice>& notice) {
  if (notice.has_value() == is_advised_) return;
  is_advised_ = notice.has_value();
  tell_({std::nullopt, notice ? notice->what : ""});
}

// ---- AWS --------------------------------------------------------------------

Result<HttpAnswer> NoticeWatcher::ask_aws(const std::string& path) {
  HttpAnswer answer{.status = kUnauthorised, .headers = {}, .body = {}};
  for (int tries = 0; tries < 2 && answer.status == kUnauthorised; ++tries) {
    if (aws_token_.empty()) {
      ASSIGN_OR_RETURN(const HttpAnswer token, http_.ask(request(Spot::kAws, kAwsToken)));
      ASSIGN_OR_RETURN(aws_token_, parse_word(token.status, token.body));
    }
    HttpRequest asked = request(Spot::kAws, path);
    asked.headers = {"X-aws-ec2-metadata-token: " + aws_token_};
    ASSIGN_OR_RETURN(answer, http_.ask(asked));
    if (answer.status == kUnauthorised) aws_token_.clear();
  }
  return answer;
}

Result<void> NoticeWatcher::look_aws() {
  ASSIGN_OR_RETURN(const HttpAnswer action, ask_aws(kAwsAction));
  ASSIGN_OR_RETURN(const std::optional<Notice> notice,
                   parse_aws_action(action.status, action.body, clock_.now().unix_ms));
  announce(notice);
  ASSIGN_OR_RETURN(const HttpAnswer rebalance, ask_aws(kAwsRebalance));
  ASSIGN_OR_RETURN(const std::optional<Notice> advice,
                   parse_aws_rebalance(rebalance.status, rebalance.body));
  advise(advice);
  return {};
}

// ---- GCP --------------------------------------------------------------------

// The server holds its answer back until the value has another tag.
Result<void> NoticeWatcher::look_gcp() {
  HttpRequest asked = request(Spot::kGcp, text(kGcpPreempted, "?wait_for_change=true&timeout_sec=",
                                               kGcpWaits / seconds(1), "&last_etag=", gcp_tag_));
  asked.limit = kGcpWaits + kGcpSlack;
  ASSIGN_OR_RETURN(const HttpAnswer answer, http_.ask(asked));
  ASSIGN_OR_RETURN(const std::optional<Notice> notice,
                   parse_gcp_preempted(answer.status, answer.body));
  announce(notice);
  const auto tag = answer.headers.find("etag");
  const bool is_hex = tag != answer.headers.end() && !tag->second.empty() &&
                      tag->second.find_first_not_of("0123456789abcdefABCDEF") == std::string::npos;
  gcp_tag_ = is_hex ? tag->second : kNoTag;
  return {};
}

// ---- Azure ------------------------------------------------------------------

Result<void> NoticeWatcher::look_azure() {
  if (azure_name_.empty()) {
    ASSIGN_OR_RETURN(const HttpAnswer name, http_.ask(request(Spot::kAzure, kAzureName)));
    ASSIGN_OR_RETURN(azure_name_, parse_word(name.status, name.body));
  }
  ASSIGN_OR_RETURN(const HttpAnswer answer, http_.ask(request(Spot::kAzure, kAzureEvents)));
  ASSIGN_OR_RETURN(
      const std::optional<Notice> notice,
      parse_azure_events(answer.status, answer.body, azure_name_, clock_.now().unix_ms));
  if (notice && notice->id != announced_) azure_event_ = notice->id;
  announce(notice);
  if (azure_event_.empty() || !may_acknowledge_) return {};
  return acknowledge_azure();
}

Result<void> NoticeWatcher::acknowledge_azure() {
  HttpRequest started = request(Spot::kAzure, kAzureEvents);
  started.method = "POST";
  started.headers.emplace_back("Content-Type: application/json");
  started.body = azure_acknowledgement(azure_event_);
  ASSIGN_OR_RETURN(const HttpAnswer answer, http_.ask(started));
  if (answer.status != kOk)
    return fail(ErrorCode::kInvalid, text("Azure: an acknowledgement got status ", answer.status));
  log_info("Azure may end this machine now: it has left", {{"event", azure_event_}});
  azure_event_.clear();
  return {};
}

}  // namespace skerry::daemon
