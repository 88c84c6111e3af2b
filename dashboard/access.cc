// SPDX-License-Identifier: Apache-2.0
#include "dashboard/access.h"

#include <sodium.h>

#include <algorithm>

#include "base/check.h"
#include "base/text.h"

namespace skerry::dashboard {
namespace {

// __Host-: the browser takes it only with Secure and for this host alone.
constexpr std::string_view kCookie = "__Host-skerry=";

std::string random_word() {
  SKERRY_CHECK(sodium_init() >= 0, "libsodium found no source of random numbers");
  std::string bytes(32, '\0');
  randombytes_buf(bytes.data(), bytes.size());
  return to_hex(bytes);
}

bool same_secret(std::string_view a, std::string_view b) {
  return a.size() == b.size() && sodium_memcmp(a.data(), b.data(), a.size()) == 0;
}

std::string lower(std::string_view words) {
  std::string out(words);
  std::transform(out.begin(), out.end(), out.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return out;
}

// "[::1]:80" and "name:80" without the port; an address in brackets keeps them.
std::string_view without_port(std::string_view host) {
  const std::size_t bracket = host.starts_with('[') ? host.find(']') : 0;
  if (bracket == std::string_view::npos) return host;
  return host.substr(0, host.find(':', bracket));
}

}  // namespace

Access::Access(Options options) : options_(std::move(options)), key_(random_word()) {
  for (std::string& host : options_.hosts) host = lower(host);
}

bool Access::is_own_host(std::string_view header) const {
  const std::string host = lower(without_port(header));
  return std::find(options_.hosts.begin(), options_.hosts.end(), host) != options_.hosts.end();
}

std::optional<std::string> Access::start_session(std::string_view key) {
  if (!options_.needs_session || !same_secret(key, key_)) return std::nullopt;
  key_ = random_word();
  if (sessions_.size() >= kSessions) sessions_.pop_front();
  sessions_.push_back(random_word());
  return text(kCookie, sessions_.back(), "; Path=/; Secure; HttpOnly; SameSite=Strict");
}

bool Access::may_read(std::string_view header) const {
  if (!options_.needs_session) return true;
  while (!header.empty()) {
    const std::size_t end = std::min(header.find(';'), header.size());
    std::string_view pair = header.substr(0, end);
    while (pair.starts_with(' ')) pair.remove_prefix(1);
    header.remove_prefix(std::min(end + 1, header.size()));
    if (!pair.starts_with(kCookie)) continue;
    const std::string_view session = pair.substr(kCookie.size());
    if (std::any_of(sessions_.begin(), sessions_.end(),
                    [&](const std::string& known) { return same_secret(session, known); }))
      return true;
  }
  return false;
}

}  // namespace skerry::dashboard
