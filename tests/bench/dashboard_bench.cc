// SPDX-License-Identifier: Apache-2.0
// /metrics of a large fleet: its size, and the time that it takes to write.
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <vector>

#include "dashboard/metrics.h"
#include "dashboard/testing/large_fleet.h"
#include "tests/bench/measure.h"

int main() {
  const skerry::dashboard::FleetState fleet = skerry::dashboard::large_fleet(1000);
  std::vector<double> seconds;
  std::size_t bytes = 0;
  for (int turn = 0; turn < 21; ++turn) {
    seconds.push_back(
        skerry::bench::seconds_of([&] { bytes = skerry::dashboard::metrics_text(fleet).size(); }));
  }
  std::sort(seconds.begin(), seconds.end());
  const nlohmann::json line = {{"nodes", fleet.nodes.size()},
                               {"bytes", bytes},
                               {"median_ms", 1000 * seconds[seconds.size() / 2]},
                               {"longest_ms", 1000 * seconds.back()}};
  std::printf("%s\n", line.dump().c_str());
}
