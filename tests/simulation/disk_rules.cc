#include "tests/simulation/disk_rules.h"

#include "coordinator/keys.h"

namespace skerry::simulation {

void DiskRules::apply_first() {
  for (const coordinator::Write& write : pending_.front().writes) {
    if (write.value) {
      sure_[write.key] = *write.value;
    } else {
      sure_.erase(write.key);
    }
  }
  pending_.pop_front();
}

void DiskRules::stepped(const coordinator::Event* event, const coordinator::Effects& effects) {
  if (const auto* persisted = event == nullptr ? nullptr : std::get_if<coordinator::Persisted>(event)) {
    while (!pending_.empty() && pending_.front().number <= persisted->batch) apply_first();
  }
  if (effects.batch != 0) pending_.push_back({effects.batch, effects.writes});
}

std::string DiskRules::started(const Durable& durable) {
  while (sure_ != durable && !pending_.empty()) apply_first();
  const bool is_right = sure_ == durable;
  pending_.clear();
  sure_ = durable;
  return is_right ? ""
                  : "after a start the disk holds no state that ever was, or an older one than it had synced";
}

void DiskRules::restored(const Durable& durable) {
  pending_.clear();
  sure_ = durable;
}

std::size_t DiskRules::events(const Durable& durable) {
  const std::string prefix = coordinator::kEventPrefix;
  std::string end = prefix;
  ++end.back();
  std::size_t count = 0;
  const auto last = durable.lower_bound(end);
  for (auto at = durable.lower_bound(prefix); at != last; ++at) ++count;
  return count;
}

}  // namespace skerry::simulation
