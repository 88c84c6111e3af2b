#include "tests/simulation/real_host.h"

#include "base/check.h"
#include "base/text.h"

namespace skerry::simulation {

protocol::Identity real_identity(std::uint64_t seed, const std::string& name) {
  Result<protocol::Identity> made = protocol::Identity::from_seed(blake2b(text(seed, ' ', name)).raw());
  SKERRY_CHECK(made.has_value(), "32 bytes are a seed");
  return std::move(*made);
}

Result<void> RealDisk::Store::has_room(std::size_t bytes, bool metadata) const {
  if (bytes > 0 && (metadata ? is_full_of_state : is_full))
    return fail(ErrorCode::kExhausted, "the disk is full");
  return {};
}

void RealDisk::process_ended(std::uint64_t seed, bool machine) {
  store.crash(seed);
  if (machine) files.crash(seed);
}

void RealWorker::plan(Duration now, Dice& dice, Duration slowest) {
  if (due_ == Duration::max() && worker_.waiting() > 0) due_ = now + dice.duration(milliseconds(1), slowest);
}

Done RealWorker::finish_job() {
  due_ = Duration::max();
  return worker_.next();
}

}  // namespace skerry::simulation
