// SPDX-License-Identifier: Apache-2.0
#include "coordinator/host/loop.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace skerry::coordinator {

Result<void> run(Host& host, protocol::ServerTransport& transport, Completions& completions,
                 int stop) {
  const std::array<int, 2> readable = {completions.descriptor(), stop};
  host.begin();
  for (bool stopping = false; !stopping && !host.failure();) {
    ASSIGN_OR_RETURN(const std::vector<int> ready,
                     transport.poll(host.wait(), readable, [&](protocol::ServerEvent event) {
                       host.on_transport(std::move(event));
                     }));
    host.woken();
    stopping = std::ranges::find(ready, stop) != ready.end();
    completions.run();
    host.every_now_and_then();
  }
  host.stop();
  pollfd waiting{completions.descriptor(), POLLIN, 0};
  while (host.is_writing() && !host.failure()) {
    if (::poll(&waiting, 1, -1) < 0 && errno != EINTR)
      return fail(ErrorCode::kIo, "cannot wait for the disk");
    completions.run();
  }
  return host.finish();
}

}  // namespace skerry::coordinator
