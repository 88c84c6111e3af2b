// SPDX-License-Identifier: Apache-2.0
#include "daemon/host/node_view.h"

#include <cerrno>
#include <cstdlib>

#include "base/text.h"
#include "daemon/host/data_folder.h"
#include "storage/files.h"
#include "storage/rocksdb/rocksdb_store.h"

namespace skerry::daemon {
namespace {

// A daemon that drops a checkpoint at the moment of the look makes it fail.
constexpr int kAttempts = 5;

Result<std::filesystem::path> make_scratch() {
  std::string pattern = (std::filesystem::temp_directory_path() / "skerryd-reads-XXXXXX").string();
  if (::mkdtemp(pattern.data()) == nullptr) return system_error("make the folder", pattern, errno);
  return std::filesystem::path(pattern);
}

}  // namespace

Result<std::unique_ptr<NodeView>> NodeView::open(const std::filesystem::path& data) {
  const DataPaths paths(data);
  std::error_code error;
  if (!std::filesystem::exists(paths.store(), error)) {
    return fail(
        ErrorCode::kNotFound,
        text(data.string(), " is no data folder of a node that has run: name one by --data DIR"));
  }
  std::unique_ptr<NodeView> view(new NodeView);
  ASSIGN_OR_RETURN(view->context_, protocol::read_context(paths.context_file()));
  ASSIGN_OR_RETURN(view->scratch_, make_scratch());
  for (int attempt = 1;; ++attempt) {
    const auto look = [&]() -> Result<void> {
      view->objects_.reset();
      ASSIGN_OR_RETURN(view->store_,
                       storage::view_rocksdb_store(paths.store(), view->scratch_.string()));
      ASSIGN_OR_RETURN(view->objects_, storage::ObjectStore::view(*view->store_, paths.objects(),
                                                                  storage::Checkpoints::kAsFiles));
      return {};
    };
    const Result<void> looked = look();
    if (looked) return view;
    if (attempt == kAttempts) return looked.error();
  }
}

NodeView::~NodeView() {
  objects_.reset();
  store_.reset();
  std::error_code ignored;
  if (!scratch_.empty()) std::filesystem::remove_all(scratch_, ignored);
}

}  // namespace skerry::daemon
