#include "protocol/stranger_guard.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

namespace skerry::protocol {
namespace {

std::uint64_t received_bytes(int descriptor) {
  tcp_info info{};
  socklen_t size = sizeof info;
  if (::getsockopt(descriptor, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return 0;
  return info.tcpi_bytes_received;
}

}  // namespace

void StrangerGuard::accepted(int descriptor) {
  leaves(descriptor);
  at_[descriptor] = order_.insert(order_.end(), descriptor);
  if (order_.size() <= limit_) return;
  ::shutdown(order_.front(), SHUT_RDWR);  // its disconnection is told by the monitor
  leaves(order_.front());
}

void StrangerGuard::leaves(int descriptor) {
  const auto found = at_.find(descriptor);
  if (found == at_.end()) return;
  order_.erase(found->second);
  at_.erase(found);
}

void StrangerGuard::check_bytes(std::uint64_t limit_bytes) {
  for (const int descriptor : order_) {
    if (received_bytes(descriptor) > limit_bytes) ::shutdown(descriptor, SHUT_RDWR);
  }
}

}  // namespace skerry::protocol
