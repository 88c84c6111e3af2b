// SPDX-License-Identifier: Apache-2.0
// What viewers can read: documents by path, each with a version. The watcher
// writes it, the server reads it, so any number of viewers costs the
// coordinator nothing.
//
// THREADS: any.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>

namespace skerry::dashboard {

struct Document {
  std::string type;  // of HTTP: "application/json"
  std::string body;
  std::uint64_t version = 0;  // grows with each change of any document
};

class Board {
 public:
  // A document that is the same as before keeps its version.
  void put(const std::string& path, std::string_view type, std::string body);
  void put_json(const std::string& path, std::string body);
  // `alias` leads to the document of `path`; viewers do not learn of it.
  void put_alias(const std::string& alias, const std::string& path);
  // Removes every document and alias whose path starts with `prefix` and is not
  // in `kept`.
  void keep_only(std::string_view prefix, const std::set<std::string>& kept);

  // RETURNS: nullptr if there is no such document.
  std::shared_ptr<const Document> find(const std::string& path) const;
  // RETURNS: a JSON object of the paths that changed since version `seen`, each
  // with its version; empty if none did. `seen` becomes the newest version.
  std::string changes_since(std::uint64_t& seen) const;

 private:
  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<const Document>> documents_;
  std::map<std::string, std::string> aliases_;
  std::uint64_t version_ = 0;
};

}  // namespace skerry::dashboard
