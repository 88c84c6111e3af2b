// SPDX-License-Identifier: Apache-2.0
#include "dashboard/board.h"

#include <nlohmann/json.hpp>

namespace skerry::dashboard {

void Board::put(const std::string& path, std::string_view type, std::string body) {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<const Document>& place = documents_[path];
  if (place && place->body == body) return;
  place = std::make_shared<const Document>(
      Document{.type = std::string(type), .body = std::move(body), .version = ++version_});
}

void Board::put_json(const std::string& path, std::string body) {
  put(path, "application/json", std::move(body));
}

void Board::put_alias(const std::string& alias, const std::string& path) {
  const std::lock_guard lock(mutex_);
  aliases_[alias] = path;
}

void Board::keep_only(std::string_view prefix, const std::set<std::string>& kept) {
  const std::lock_guard lock(mutex_);
  const auto goes = [&](const auto& entry) {
    return entry.first.starts_with(prefix) && kept.count(entry.first) == 0;
  };
  std::erase_if(documents_, goes);
  std::erase_if(aliases_, goes);
}

std::shared_ptr<const Document> Board::find(const std::string& path) const {
  const std::lock_guard lock(mutex_);
  const auto alias = aliases_.find(path);
  const auto found = documents_.find(alias == aliases_.end() ? path : alias->second);
  return found == documents_.end() ? nullptr : found->second;
}

std::string Board::changes_since(std::uint64_t& seen) const {
  const std::lock_guard lock(mutex_);
  nlohmann::json changed = nlohmann::json::object();
  for (const auto& [path, document] : documents_) {
    if (document->version > seen && path.starts_with("/api/")) changed[path] = document->version;
  }
  seen = version_;
  return changed.empty() ? "" : changed.dump();
}

}  // namespace skerry::dashboard
