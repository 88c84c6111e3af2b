// SPDX-License-Identifier: Apache-2.0
#include "base/http.h"

#include <curl/curl.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cctype>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/text.h"

namespace skerry {
namespace {

struct FreeHandle {
  void operator()(CURL* handle) const { curl_easy_cleanup(handle); }
};
struct FreeList {
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};

struct Transfer {
  std::unique_ptr<CURL, FreeHandle> handle;
  std::unique_ptr<curl_slist, FreeList> headers;
  HttpAnswer answer;
  std::size_t bytes = 0;
  bool too_long = false;
  bool refused = false;  // the address
  CURLcode outcome = CURLE_OPERATION_TIMEDOUT;

  // RETURNS: false if the answer becomes too long.
  bool count(std::size_t more) {
    bytes += more;
    too_long = bytes > kHttpBytes;
    return !too_long;
  }
};

std::size_t take_body(const char* data, std::size_t, std::size_t size, void* to) {
  auto& transfer = *static_cast<Transfer*>(to);
  if (!transfer.count(size)) return 0;
  transfer.answer.body.append(data, size);
  return size;
}

std::size_t take_header(const char* data, std::size_t, std::size_t size, void* to) {
  auto& transfer = *static_cast<Transfer*>(to);
  if (!transfer.count(size)) return 0;
  const std::string_view line(data, size);
  const std::size_t colon = line.find(':');
  if (colon == std::string_view::npos) return size;
  std::string name(line.substr(0, colon));
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
  std::string_view value = line.substr(colon + 1);
  const auto is_space = [](char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; };
  while (!value.empty() && is_space(value.front())) value.remove_prefix(1);
  while (!value.empty() && is_space(value.back())) value.remove_suffix(1);
  transfer.answer.headers[std::move(name)] = value;
  return size;
}

bool is_link_local(const sockaddr& address) {
  if (address.sa_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
    return (ntohl(v4.sin_addr.s_addr) >> 16) == 0xa9fe;  // 169.254.0.0/16
  }
  if (address.sa_family != AF_INET6) return true;  // no other family goes outward
  const in6_addr& v6 = reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
  const bool mapped = IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == 169 && v6.s6_addr[13] == 254;
  return IN6_IS_ADDR_LINKLOCAL(&v6) || mapped;
}

// Sees the address that a name led to, so a name cannot lead around the check.
curl_socket_t open_outward(void* transfer, curlsocktype, curl_sockaddr* to) {
  if (is_link_local(to->addr)) {
    static_cast<Transfer*>(transfer)->refused = true;
    return CURL_SOCKET_BAD;
  }
  return ::socket(to->family, to->socktype | SOCK_CLOEXEC, to->protocol);
}

std::unique_ptr<Transfer> prepare(const HttpRequest& request) {
  auto transfer = std::make_unique<Transfer>();
  transfer->handle.reset(curl_easy_init());
  CURL* const handle = transfer->handle.get();
  SKERRY_CHECK(handle != nullptr, "libcurl gives a handle");
  for (const std::string& header : request.headers) {
    curl_slist* const longer = curl_slist_append(transfer->headers.get(), header.c_str());
    if (longer != transfer->headers.get()) transfer->headers.reset(longer);
  }
  const auto limit_ms = static_cast<long>(request.limit / std::chrono::milliseconds(1));
  curl_easy_setopt(handle, CURLOPT_URL, request.url.c_str());
  curl_easy_setopt(handle, CURLOPT_PROTOCOLS_STR, request.outward ? "http,https" : "http");
  if (request.outward) curl_easy_setopt(handle, CURLOPT_OPENSOCKETFUNCTION, &open_outward);
  curl_easy_setopt(handle, CURLOPT_OPENSOCKETDATA, transfer.get());
  curl_easy_setopt(handle, CURLOPT_PROXY, "");  // none, whatever the environment says
  curl_easy_setopt(handle, CURLOPT_FOLLOWLOCATION, 0L);
  curl_easy_setopt(handle, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(handle, CURLOPT_QUICK_EXIT, 1L);  // does not wait for a name's lookup
  curl_easy_setopt(handle, CURLOPT_TIMEOUT_MS, limit_ms);
  curl_easy_setopt(handle, CURLOPT_HTTPHEADER, transfer->headers.get());
  curl_easy_setopt(handle, CURLOPT_WRITEFUNCTION, &take_body);
  curl_easy_setopt(handle, CURLOPT_WRITEDATA, transfer.get());
  curl_easy_setopt(handle, CURLOPT_HEADERFUNCTION, &take_header);
  curl_easy_setopt(handle, CURLOPT_HEADERDATA, transfer.get());
  if (request.method != "GET") {
    curl_easy_setopt(handle, CURLOPT_POSTFIELDSIZE, static_cast<long>(request.body.size()));
    curl_easy_setopt(handle, CURLOPT_COPYPOSTFIELDS, request.body.c_str());
    curl_easy_setopt(handle, CURLOPT_CUSTOMREQUEST, request.method.c_str());
  }
  return transfer;
}

Result<HttpAnswer> result_of(Transfer& transfer, const HttpRequest& request) {
  if (transfer.too_long) {
    return fail(ErrorCode::kExhausted,
                text(request.url, " answers more than ", kHttpBytes >> 10, " KiB"));
  }
  if (transfer.outcome != CURLE_OK && transfer.refused) {
    return fail(ErrorCode::kInvalid,
                "the server is at a link-local address, which is refused: name another");
  }
  if (transfer.outcome != CURLE_OK) {
    return fail(ErrorCode::kUnavailable,
                text(request.url, ": ", curl_easy_strerror(transfer.outcome)));
  }
  curl_easy_getinfo(transfer.handle.get(), CURLINFO_RESPONSE_CODE, &transfer.answer.status);
  return std::move(transfer.answer);
}

}  // namespace

struct Http::Curl {
  CURLM* multi = curl_multi_init();
};

Http::Http() {
  SKERRY_CHECK(curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK, "libcurl starts");
  curl_ = std::make_unique<Curl>();
  SKERRY_CHECK(curl_->multi != nullptr, "libcurl gives a handle");
}

Http::~Http() { curl_multi_cleanup(curl_->multi); }

void Http::wait(Duration limit) {
  if (stopped_) return;
  curl_multi_poll(curl_->multi, nullptr, 0, static_cast<int>(limit / std::chrono::milliseconds(1)),
                  nullptr);
}

void Http::wake() { curl_multi_wakeup(curl_->multi); }

void Http::stop() {
  stopped_ = true;
  wake();
}

std::vector<Result<HttpAnswer>> Http::ask(const std::vector<HttpRequest>& requests) {
  std::vector<std::unique_ptr<Transfer>> transfers;
  for (const HttpRequest& request : requests) {
    transfers.push_back(prepare(request));
    curl_multi_add_handle(curl_->multi, transfers.back()->handle.get());
  }
  for (int running = 1; running > 0 && !stopped_;) {
    if (curl_multi_perform(curl_->multi, &running) != CURLM_OK) break;
    if (running > 0) curl_multi_poll(curl_->multi, nullptr, 0, 1000, nullptr);
  }
  int left = 0;
  while (const CURLMsg* const message = curl_multi_info_read(curl_->multi, &left)) {
    for (const auto& transfer : transfers) {
      if (transfer->handle.get() == message->easy_handle) transfer->outcome = message->data.result;
    }
  }
  std::vector<Result<HttpAnswer>> answers;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    curl_multi_remove_handle(curl_->multi, transfers[i]->handle.get());
    answers.push_back(result_of(*transfers[i], requests[i]));
  }
  return answers;
}

}  // namespace skerry
