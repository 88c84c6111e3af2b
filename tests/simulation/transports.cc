// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/transports.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/text.h"

namespace skerry::simulation {

ServerEnd::ServerEnd(Network& network, Handle handle)
    : network_(network), handle_(std::move(handle)) {
  network_.server_up(*this);
}

ServerEnd::~ServerEnd() { network_.server_down(); }

void ServerEnd::set_allowed(std::unordered_set<std::string> keys) {
  std::vector<std::string> gone;
  for (const std::string& key : allowed_) {
    if (!keys.contains(key)) gone.push_back(key);
  }
  std::ranges::sort(gone);  // the same in every build
  allowed_ = std::move(keys);
  for (const std::string& key : gone) network_.throw_out(key);
}

Result<void> ServerEnd::send(const protocol::Connection& connection, std::string_view bytes) {
  if (!network_.send_to_client(connection.id, std::string(bytes)))
    return fail(ErrorCode::kUnavailable, "not connected");
  return {};
}

void ServerEnd::close(const protocol::Connection& connection) {
  blobs_.erase(connection.id);
  network_.disconnect(connection.id);
}

void ServerEnd::received(const ConnectionId& connection, Endpoint endpoint, const std::string& key,
                         const std::string& bytes) {
  if (endpoint == Endpoint::kBlob) blobs_.insert(connection);
  handle_(protocol::Incoming{{endpoint, connection}, key, "simulated", bytes});
}

void ServerEnd::closed(const ConnectionId& connection, Endpoint endpoint, const std::string& key) {
  blobs_.erase(connection);
  handle_(protocol::Closed{{endpoint, connection}, key});
}

void ClientEnd::hang_up(Endpoint endpoint) {
  open_.erase(endpoint);
  network_.hang_up(address_, endpoint);
}

Result<void> ClientEnd::send(Endpoint endpoint, std::string_view bytes) {
  if (!open_.contains(endpoint)) return fail(ErrorCode::kUnavailable, "not connected");
  network_.send_to_server(address_, endpoint, std::string(bytes));
  return {};
}

void ClientEnd::opened(Endpoint endpoint) {
  open_.insert(endpoint);
  handle_(protocol::Opened{endpoint});
}

void ClientEnd::lost(Endpoint endpoint) {
  open_.erase(endpoint);
  handle_(protocol::Lost{endpoint});
}

}  // namespace skerry::simulation
