// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/real_host.h"

#include "base/check.h"
#include "base/text.h"

namespace skerry::simulation {

protocol::Identity real_identity(std::uint64_t seed, const std::string& name) {
  Result<protocol::Identity> made =
      protocol::Identity::from_seed(blake2b(text(seed, ' ', name)).raw());
  SKERRY_CHECK(made.has_value(), "32 bytes are a seed");
  return std::move(*made);
}

Result<void> RealDisk::Store::has_room(std::size_t bytes, bool metadata) const {
  if (bytes > 0 && (metadata ? is_full_of_state : is_full))
    return fail(ErrorCode::kExhausted, "the disk is full");
  return {};
}

void RealDisk::heal() {
  make_room();
  slowest = kUsual;
  files.flip_reads(0, 1);
  for (const auto operation : {storage::StoreOperation::kWrite, storage::StoreOperation::kFlush})
    store.fail_at(operation, 0);
  for (int operation = 0; operation < 6; ++operation)
    files.fail_at(static_cast<storage::FileOperation>(operation), 0);
}

bool RealDisk::is_outlived(Duration now) {
  constexpr Duration kEndsWithin = seconds(10);
  if (!store.failed()) {
    failed_at_.reset();
  } else if (!failed_at_) {
    failed_at_ = now;
  }
  return failed_at_ && now - *failed_at_ > kEndsWithin;
}

void RealDisk::process_ended(std::uint64_t seed, bool machine) {
  failed_at_.reset();
  store.crash(seed);
  if (machine) files.crash(seed);
}

void RealWorker::plan(Duration now, Dice& dice, Duration slowest) {
  if (due_ == Duration::max() && worker_.waiting() > 0)
    due_ = now + dice.duration(milliseconds(1), slowest);
}

Done RealWorker::finish_job() {
  due_ = Duration::max();
  return worker_.next();
}

}  // namespace skerry::simulation
