// SPDX-License-Identifier: Apache-2.0
#include "diffusion/formats/table.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/check.h"
#include "base/random.h"

namespace skerry::diffusion {
namespace {

constexpr int kCoarseTries = 5;
constexpr int kCoarseIterations = 50;
constexpr double kFirstCap = 1.05;

struct Problem {
  const std::vector<float>& centroids;
  std::size_t features;
  const std::vector<std::uint64_t>& counts;
  std::size_t experts;
  std::size_t fine() const { return counts.size(); }
};

double squared_distance(const float* a, const double* b, std::size_t n) {
  double sum = 0;
  for (std::size_t i = 0; i < n; ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return sum;
}

using Matrix = std::vector<double>;  // row-major

Matrix distances(const Problem& p, const Matrix& coarse) {  // [fine, experts]
  Matrix out(p.fine() * p.experts);
  for (std::size_t j = 0; j < p.fine(); ++j) {
    for (std::size_t k = 0; k < p.experts; ++k) {
      out[j * p.experts + k] =
          squared_distance(&p.centroids[j * p.features], &coarse[k * p.features], p.features);
    }
  }
  return out;
}

// Seeds far from each other: each is drawn by weight times squared distance to
// the nearest so far.
Matrix seed_coarse(const Problem& p, Stream& stream) {
  Matrix coarse;
  std::vector<double> nearest(p.fine(), 1.0);
  for (std::size_t k = 0; k < p.experts; ++k) {
    double total = 0;
    for (std::size_t j = 0; j < p.fine(); ++j)
      total += nearest[j] * static_cast<double>(p.counts[j]);
    double left = stream.uniform() * total;
    std::size_t chosen = 0;
    for (std::size_t j = 0; j < p.fine(); ++j) {
      if (nearest[j] <= 0) continue;
      chosen = j;
      left -= nearest[j] * static_cast<double>(p.counts[j]);
      if (left < 0) break;
    }
    const float* row = &p.centroids[chosen * p.features];
    coarse.insert(coarse.end(), row, row + p.features);
    for (std::size_t j = 0; j < p.fine(); ++j) {
      const double d =
          squared_distance(&p.centroids[j * p.features], &coarse[k * p.features], p.features);
      nearest[j] = k == 0 ? d : std::min(nearest[j], d);
    }
  }
  return coarse;
}

double improve_coarse(const Problem& p, Matrix& coarse) {
  double cost = 0;
  std::vector<std::size_t> nearest(p.fine(), p.experts);
  for (int iteration = 0; iteration < kCoarseIterations; ++iteration) {
    const Matrix d = distances(p, coarse);
    Matrix sum(coarse.size());
    std::vector<double> weight(p.experts);
    bool changed = false;
    cost = 0;
    for (std::size_t j = 0; j < p.fine(); ++j) {
      const auto row = d.begin() + static_cast<std::ptrdiff_t>(j * p.experts);
      const auto best = std::min_element(row, row + static_cast<std::ptrdiff_t>(p.experts));
      const auto k = static_cast<std::size_t>(best - row);
      const auto count = static_cast<double>(p.counts[j]);
      changed = changed || nearest[j] != k;
      nearest[j] = k;
      cost += *best * count;
      weight[k] += count;
      for (std::size_t i = 0; i < p.features; ++i) {
        sum[k * p.features + i] += count * p.centroids[j * p.features + i];
      }
    }
    if (!changed) break;
    for (std::size_t k = 0; k < p.experts; ++k) {
      if (weight[k] == 0) continue;
      for (std::size_t i = 0; i < p.features; ++i)
        coarse[k * p.features + i] = sum[k * p.features + i] / weight[k];
    }
  }
  return cost;
}

Matrix coarse_centroids(const Problem& p, std::uint64_t seed) {
  Matrix best;
  double best_cost = std::numeric_limits<double>::infinity();
  for (int attempt = 0; attempt < kCoarseTries; ++attempt) {
    Stream stream(Position{.seed = seed,
                           .step = 1,
                           .sample = static_cast<std::uint32_t>(attempt),
                           .purpose = Purpose::kCluster});
    Matrix coarse = seed_coarse(p, stream);
    const double cost = improve_coarse(p, coarse);
    if (best.empty() || cost < best_cost) {
      best = std::move(coarse);
      best_cost = cost;
    }
  }
  return best;
}

struct Caps {
  double low;
  double high;
};

// How far a load is outside the caps. An empty expert is worse than any
// imbalance.
double violation(double load, const Caps& caps, double total) {
  if (load <= 0) return 2 * total;
  return std::max(0.0, caps.low - load) + std::max(0.0, load - caps.high);
}

void fill(const Problem& p, const Matrix& d, double cap, PartitionTable& table) {
  std::vector<double> margin(
      p.fine());  // nearest minus second nearest: the most negative is the clearest
  for (std::size_t j = 0; j < p.fine(); ++j) {
    std::vector<double> row(d.begin() + static_cast<std::ptrdiff_t>(j * p.experts),
                            d.begin() + static_cast<std::ptrdiff_t>((j + 1) * p.experts));
    std::partial_sort(row.begin(), row.begin() + 2, row.end());
    margin[j] = row[0] - row[1];
  }
  std::vector<std::size_t> order(p.fine());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return margin[a] < margin[b]; });
  for (const std::size_t j : order) {
    std::size_t chosen = p.experts;
    for (std::size_t k = 0; k < p.experts; ++k) {
      if (static_cast<double>(table.load[k] + p.counts[j]) > cap) continue;
      if (chosen == p.experts || d[j * p.experts + k] < d[j * p.experts + chosen]) chosen = k;
    }
    if (chosen == p.experts) {
      chosen = static_cast<std::size_t>(std::min_element(table.load.begin(), table.load.end()) -
                                        table.load.begin());
    }
    table.expert[j] = static_cast<std::int32_t>(chosen);
    table.load[chosen] += p.counts[j];
  }
}

// One move: the least added distance for what it repairs. False where no single
// move repairs anything.
bool move_one(const Problem& p, const Matrix& d, const Caps& caps, double total,
              PartitionTable& table) {
  double best_price = std::numeric_limits<double>::infinity();
  std::size_t best_fine = 0;
  std::size_t best_expert = 0;
  const auto badness = [&](double load) { return violation(load, caps, total); };
  for (std::size_t j = 0; j < p.fine(); ++j) {
    const auto from = static_cast<std::size_t>(table.expert[j]);
    const auto count = static_cast<double>(p.counts[j]);
    const auto from_load = static_cast<double>(table.load[from]);
    const double left = badness(from_load - count) - badness(from_load);
    for (std::size_t k = 0; k < p.experts; ++k) {
      if (k == from) continue;
      const auto to_load = static_cast<double>(table.load[k]);
      const double gain = -(left + badness(to_load + count) - badness(to_load));
      if (gain <= 0) continue;
      const double price =
          std::max(0.0, d[j * p.experts + k] - d[j * p.experts + from]) * count / gain;
      if (price < best_price) {
        best_price = price;
        best_fine = j;
        best_expert = k;
      }
    }
  }
  if (std::isinf(best_price)) return false;
  const auto from = static_cast<std::size_t>(table.expert[best_fine]);
  table.load[from] -= p.counts[best_fine];
  table.load[best_expert] += p.counts[best_fine];
  table.expert[best_fine] = static_cast<std::int32_t>(best_expert);
  return true;
}

}  // namespace

double PartitionTable::ratio() const {
  const auto [low, high] = std::minmax_element(load.begin(), load.end());
  if (*low == 0) return std::numeric_limits<double>::infinity();
  return static_cast<double>(*high) / static_cast<double>(*low);
}

PartitionTable build_table(const std::vector<float>& centroids, std::size_t features,
                           const std::vector<std::uint64_t>& counts, std::size_t experts,
                           std::uint64_t seed) {
  const Problem p{centroids, features, counts, experts};
  SKERRY_CHECK(experts >= 1 && p.fine() >= experts, "fewer fine centroids than experts");
  SKERRY_CHECK(centroids.size() == p.fine() * features, "centroids and counts disagree");
  PartitionTable table{std::vector<std::int32_t>(p.fine()), std::vector<std::uint64_t>(experts)};
  const auto total =
      static_cast<double>(std::accumulate(counts.begin(), counts.end(), std::uint64_t{0}));
  const double mean = total / static_cast<double>(experts);
  const Caps caps{kLowCap * mean, kHighCap * mean};
  if (experts == 1) {
    table.load[0] = static_cast<std::uint64_t>(total);
  } else {
    const Matrix d = distances(p, coarse_centroids(p, seed));
    fill(p, d, kFirstCap * mean, table);
    while (move_one(p, d, caps, total, table)) {
    }
  }
  table.within_caps = std::all_of(table.load.begin(), table.load.end(), [&](std::uint64_t load) {
    return violation(static_cast<double>(load), caps, total) == 0;
  });
  return table;
}

}  // namespace skerry::diffusion
