// SPDX-License-Identifier: Apache-2.0
// A node's data folder as it is on the disk at this moment, to be read only:
// also while its daemon runs. For the commands of skerryd that look at a disk.
#pragma once

#include <filesystem>
#include <memory>

#include "base/result.h"
#include "protocol/context.h"
#include "storage/object_store.h"
#include "storage/store.h"

namespace skerry::daemon {

class NodeView {
 public:
  // kNotFound: no node was enrolled on this folder, or it has not run yet.
  static Result<std::unique_ptr<NodeView>> open(const std::filesystem::path& data);
  ~NodeView();

  const protocol::Context& context() const { return context_; }
  const storage::Store& store() const { return *store_; }
  const storage::ObjectStore& objects() const { return *objects_; }

 private:
  NodeView() = default;

  protocol::Context context_;
  std::filesystem::path scratch_;
  std::unique_ptr<storage::Store> store_;
  std::unique_ptr<const storage::ObjectStore> objects_;
};

}  // namespace skerry::daemon
