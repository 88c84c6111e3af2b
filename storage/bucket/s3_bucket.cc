// SPDX-License-Identifier: Apache-2.0
#include "storage/bucket/s3_bucket.h"

#include <curl/curl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <mutex>
#include <optional>
#include <pugixml.hpp>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "base/text.h"
#include "base/toml.h"

namespace skerry::storage {
namespace {

constexpr std::chrono::seconds kValid{3600};
constexpr std::size_t kShown = 200;  // of a store's words
constexpr char kScheme[] = "s3://";
constexpr std::size_t kListBytes = 8 << 20;   // of one page of a list
constexpr std::size_t kWordsBytes = 1 << 20;  // of an answer that is not asked for

struct FreeHandle {
  void operator()(CURL* handle) const { curl_easy_cleanup(handle); }
};
using Handle = std::unique_ptr<CURL, FreeHandle>;

struct Answer {
  long status = 0;
  std::string body;
  std::size_t most = kWordsBytes;
  bool is_longer = false;
};

std::size_t take_body(const char* data, std::size_t, std::size_t size, void* to) {
  Answer& answer = *static_cast<Answer*>(to);
  answer.is_longer = answer.body.size() + size > answer.most;
  if (answer.is_longer) return 0;
  answer.body.append(data, size);
  return size;
}

struct Sent {
  std::string_view left;
};
std::size_t give_body(char* to, std::size_t, std::size_t room, void* from) {
  std::string_view& left = static_cast<Sent*>(from)->left;
  const std::size_t count = std::min(room, left.size());
  left.copy(to, count);
  left.remove_prefix(count);
  return count;
}

int is_to_end(void* stop, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  return static_cast<const std::atomic<bool>*>(stop)->load() ? 1 : 0;
}

// A log takes no control bytes from elsewhere.
std::string plain(std::string words) {
  std::ranges::replace_if(
      words, [](unsigned char c) { return c < 0x20 || c == 0x7f; }, '?');
  return words;
}

// What the store says of a refusal: "AccessDenied: no such key id".
std::string reason_of(const Answer& answer) {
  pugi::xml_document document;
  if (document.load_buffer(answer.body.data(), answer.body.size())) {
    const pugi::xml_node error = document.child("Error");
    const std::string code = error.child_value("Code"), words = error.child_value("Message");
    if (!code.empty()) {
      return text("HTTP ", answer.status, ", ",
                  plain(code.substr(0, kShown) + ": " + words.substr(0, kShown)));
    }
  }
  return text("HTTP ", answer.status);
}

bool says(const Answer& answer, std::string_view code) {
  return answer.body.find(text("<Code>", code, "</Code>")) != std::string::npos;
}

// MinIO says that it is full by 507 or XMinioStorageFull, others by a quota.
bool is_full(const Answer& answer) {
  return answer.status == 507 || says(answer, "XMinioStorageFull") ||
         says(answer, "QuotaExceeded") || says(answer, "StorageQuotaExceeded");
}

bool may_pass(const Answer& answer) {
  return (answer.status >= 500 && !is_full(answer)) || answer.status == 429 ||
         answer.status == 408 || says(answer, "RequestTimeTooSkewed");
}

ErrorCode code_of(const Answer& answer) {
  if (is_full(answer)) return ErrorCode::kExhausted;
  if (answer.status == 401 || answer.status == 403) return ErrorCode::kUnauthorised;
  if (answer.status == 404 && !says(answer, "NoSuchBucket")) return ErrorCode::kNotFound;
  return may_pass(answer) ? ErrorCode::kUnavailable : ErrorCode::kInvalid;
}

class S3Bucket final : public Bucket {
 public:
  S3Bucket(S3Place place, std::string bucket, std::string prefix)
      : place_(std::move(place)), bucket_(std::move(bucket)), prefix_(std::move(prefix)) {}

  Result<std::string> get(const std::string& key, std::size_t most) const override {
    ASSIGN_OR_RETURN(Answer answer, ask("GET", key, {}, {}, most));
    return std::move(answer.body);
  }

  Result<void> put(const std::string& key, std::string_view value) override {
    TRY(ask("PUT", key, {}, value));
    return {};
  }

  Result<void> remove(const std::string& key) override {
    const Result<Answer> answer = ask("DELETE", key, {}, {});
    if (!answer && answer.error().code != ErrorCode::kNotFound) return answer.error();
    return {};
  }

  Result<std::vector<BucketItem>> list(const std::string& prefix) const override {
    std::vector<BucketItem> items;
    std::map<std::string, std::string> query{{"list-type", "2"}, {"prefix", prefix_ + prefix}};
    for (;;) {
      ASSIGN_OR_RETURN(const Answer answer, ask("GET", std::nullopt, query, {}, kListBytes));
      pugi::xml_document document;
      const bool is_list = document.load_buffer(answer.body.data(), answer.body.size()) &&
                           document.child("ListBucketResult");
      if (!is_list) return fail(ErrorCode::kInvalid, text(shown(), ": not a list of keys"));
      const pugi::xml_node result = document.child("ListBucketResult");
      for (const pugi::xml_node each : result.children("Contents")) {
        const std::string key = each.child_value("Key");
        if (!key.starts_with(prefix_)) continue;
        items.push_back({key.substr(prefix_.size()), each.child("Size").text().as_ullong()});
      }
      const std::string next = result.child_value("NextContinuationToken");
      if (!result.child("IsTruncated").text().as_bool() || next.empty()) break;
      if (std::exchange(query["continuation-token"], next) == next)
        return fail(ErrorCode::kInvalid, text(shown(), ": a list that comes to no end"));
    }
    std::ranges::sort(items, {}, &BucketItem::key);
    return items;
  }

  std::string shown() const override { return place_.url; }

 private:
  using Query = std::map<std::string, std::string>;

  std::string name_of(const std::optional<std::string>& key) const {
    return key ? text(kScheme, bucket_, '/', prefix_, *key) : place_.url;
  }

  // Without a key: of the bucket itself.
  Result<Answer> ask(const char* method, const std::optional<std::string>& key, const Query& query,
                     std::string_view body, std::size_t most = kWordsBytes) const {
    std::chrono::milliseconds pause = place_.first_pause;
    for (int left = place_.tries - 1;; --left, pause *= 2) {
      Result<Answer> answer = ask_once(method, key, query, body, most);
      const bool may_be_so = !answer && answer.error().code == ErrorCode::kUnavailable;
      const bool again = !is_stopped() && (may_be_so || (answer && may_pass(*answer)));
      if (!again && answer->status / 100 == 2) return answer;
      if (!again || left <= 0) {
        if (!answer) return answer.error();
        return fail(code_of(*answer), text(method, ' ', name_of(key), ": ", reason_of(*answer)));
      }
      log_debug(
          "asks the bucket again",
          {{"key", name_of(key)}, {"why", answer ? reason_of(*answer) : answer.error().message}});
      rest(pause);
    }
  }

  bool is_stopped() const { return place_.stop != nullptr && *place_.stop; }

  void rest(std::chrono::milliseconds pause) const {
    constexpr std::chrono::milliseconds kAtOnce{100};
    for (; pause.count() > 0 && !is_stopped(); pause -= kAtOnce)
      std::this_thread::sleep_for(std::min(pause, kAtOnce));
  }

  Result<Answer> ask_once(const char* method, const std::optional<std::string>& key,
                          const Query& query, std::string_view body, std::size_t most) const {
    const SignedRequest request{.method = method,
                                .origin = place_.endpoint,
                                .path = '/' + bucket_ + (key ? '/' + prefix_ + *key : ""),
                                .query = query};
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    const std::string url =
        signed_url(request, place_.keys, place_.region,
                   std::chrono::duration_cast<std::chrono::seconds>(now).count(), kValid);
    Answer answer{.most = std::max(most, kWordsBytes)};
    Sent sent{body};
    Handle handle = take_handle();
    CURL* const curl = handle.get();
    curl_easy_reset(curl);
    curl_easy_setopt(curl, CURLOPT_URL, url.c_str());
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_QUICK_EXIT, 1L);  // does not wait for a name's lookup
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, static_cast<long>(place_.silence.count()));
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, static_cast<long>(place_.silence.count()));
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, &take_body);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, &answer);
    if (place_.stop != nullptr) {
      curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
      curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, &is_to_end);
      curl_easy_setopt(curl, CURLOPT_XFERINFODATA, place_.stop);
    }
    if (request.method == "PUT") {
      curl_easy_setopt(curl, CURLOPT_UPLOAD, 1L);
      curl_easy_setopt(curl, CURLOPT_READFUNCTION, &give_body);
      curl_easy_setopt(curl, CURLOPT_READDATA, &sent);
      curl_easy_setopt(curl, CURLOPT_INFILESIZE_LARGE, static_cast<curl_off_t>(body.size()));
    } else {
      curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, method);
    }
    const CURLcode outcome = curl_easy_perform(curl);
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &answer.status);
    if (answer.is_longer || (answer.status / 100 == 2 && answer.body.size() > most)) {
      return fail(ErrorCode::kInvalid,
                  text(method, ' ', name_of(key), ": an answer of more than ", most, " bytes"));
    }
    if (outcome != CURLE_OK) {  // its connection may be broken: another is made
      return fail(ErrorCode::kUnavailable, text(method, ' ', name_of(key), " at ", place_.endpoint,
                                                ": ", curl_easy_strerror(outcome)));
    }
    const std::scoped_lock lock(mutex_);
    idle_.push_back(std::move(handle));
    return answer;
  }

  // A handle keeps its connection open.
  Handle take_handle() const {
    const std::scoped_lock lock(mutex_);
    if (idle_.empty()) {
      Handle fresh(curl_easy_init());
      SKERRY_CHECK(fresh != nullptr, "libcurl gives a handle");
      return fresh;
    }
    Handle handle = std::move(idle_.back());
    idle_.pop_back();
    return handle;
  }

  S3Place place_;
  std::string bucket_, prefix_;  // the prefix ends with '/', or is empty
  mutable std::mutex mutex_;
  mutable std::vector<Handle> idle_;
};

}  // namespace

Result<std::unique_ptr<Bucket>> open_s3_bucket(S3Place place) {
  static const CURLcode started = curl_global_init(CURL_GLOBAL_DEFAULT);
  SKERRY_CHECK(started == CURLE_OK, "libcurl starts");
  while (place.url.ends_with('/')) place.url.pop_back();
  const std::string named = place.url.starts_with(kScheme) ? place.url.substr(5) : "";
  const std::size_t slash = named.find('/');
  const std::string bucket = named.substr(0, slash);
  if (bucket.empty() || named.find_first_of("?#% \t") != std::string::npos) {
    return fail(ErrorCode::kInvalid,
                text("expected s3://BUCKET or s3://BUCKET/PREFIX, found \"", place.url, '"'));
  }
  const std::string prefix = slash == std::string::npos ? "" : named.substr(slash + 1) + '/';
  if (place.endpoint.empty()) place.endpoint = text("https://s3.", place.region, ".amazonaws.com");
  while (place.endpoint.ends_with('/')) place.endpoint.pop_back();
  const bool is_web =
      place.endpoint.starts_with("https://") || place.endpoint.starts_with("http://");
  if (!is_web || place.endpoint.find('/', 8) != std::string::npos) {
    return fail(ErrorCode::kInvalid, text("expected an endpoint as https://HOST or "
                                          "https://HOST:PORT, found \"",
                                          place.endpoint, '"'));
  }
  if (place.keys.id.empty() || place.keys.secret.empty())
    return fail(ErrorCode::kInvalid, text(place.url, ": no keys"));
  return std::unique_ptr<Bucket>(std::make_unique<S3Bucket>(std::move(place), bucket, prefix));
}

Result<BucketKeys> bucket_keys(const std::string& file) {
  const auto from_environment = [](const char* name) {
    const char* const value = std::getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
  BucketKeys keys;
  if (file.empty()) {
    keys = {from_environment("AWS_ACCESS_KEY_ID"), from_environment("AWS_SECRET_ACCESS_KEY"),
            from_environment("AWS_SESSION_TOKEN")};
    if (!keys.id.empty() && !keys.secret.empty()) return keys;
    return fail(ErrorCode::kInvalid,
                "a bucket needs keys: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or name a "
                "file with --store-keys");
  }
  struct stat about {};
  if (::stat(file.c_str(), &about) == 0 && (about.st_mode & 077) != 0) {
    return fail(ErrorCode::kUnauthorised,
                text(file, " holds a secret and others may read it: chmod 600 ", file));
  }
  ASSIGN_OR_RETURN(const toml::table table, read_toml(file));
  const auto named = [&](const char* name) {
    return table[name].value<std::string>().value_or(std::string());
  };
  keys = {named("access_key_id"), named("secret_access_key"), named("session_token")};
  if (!keys.id.empty() && !keys.secret.empty()) return keys;
  return fail(ErrorCode::kInvalid,
              text(file, ": expected access_key_id = \"…\" and secret_access_key = \"…\""));
}

}  // namespace skerry::storage
