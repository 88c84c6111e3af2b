// SPDX-License-Identifier: Apache-2.0
#include "cli/connect/reach.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "base/text.h"
#include "base/unique_fd.h"
#include "protocol/endpoints.h"

namespace skerry::cli {
namespace {

constexpr std::string_view kScheme = "tcp://";

// 0, or why there is no connection.
int connect_within(const addrinfo& to, std::chrono::milliseconds within) {
  const UniqueFd fd(::socket(to.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return errno;
  if (::connect(fd.get(), to.ai_addr, to.ai_addrlen) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  pollfd waiting{fd.get(), POLLOUT, 0};
  if (::poll(&waiting, 1, static_cast<int>(within.count())) <= 0) return ETIMEDOUT;
  int outcome = 0;
  socklen_t size = sizeof outcome;
  return ::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &outcome, &size) == 0 ? outcome : errno;
}

}  // namespace

Result<std::chrono::nanoseconds> reach(const std::string& url, std::chrono::milliseconds within) {
  TRY(protocol::check_url(url));
  ASSIGN_OR_RETURN(const protocol::Address address,
                   protocol::parse_address(url.substr(kScheme.size()).append(",1,1")));
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int unknown =
      ::getaddrinfo(address.host.c_str(), text(address.ports[0]).c_str(), &wanted, &found);
  if (unknown != 0) {
    return fail(ErrorCode::kNotFound,
                text("no address of ", address.host, ": ", ::gai_strerror(unknown)));
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> addresses(found, &::freeaddrinfo);
  const auto start = std::chrono::steady_clock::now();
  int outcome = 0;
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    outcome = connect_within(*each, within);
    if (outcome == 0) return std::chrono::steady_clock::now() - start;
  }
  return fail(outcome == ETIMEDOUT ? ErrorCode::kTimeout : ErrorCode::kUnavailable,
              text("no connection: ", std::strerror(outcome)));
}

}  // namespace skerry::cli
