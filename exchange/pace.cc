// SPDX-License-Identifier: Apache-2.0
#include "exchange/pace.h"

#include <algorithm>

namespace skerry::exchange {
namespace {

constexpr Duration kBurst = std::chrono::milliseconds(100);
constexpr std::size_t kFirstWindow = 16 << 20;
constexpr std::size_t kSampleBytes = 4096;  // a smaller reply tells nothing of the rate
constexpr Duration kUnknown = std::chrono::seconds(1);

double seconds(Duration time) { return std::chrono::duration<double>(time).count(); }
Duration duration(double seconds) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}

}  // namespace

Duration TokenBucket::cost(std::size_t bytes) const {
  return duration(static_cast<double>(bytes) / static_cast<double>(bytes_per_second_));
}

void TokenBucket::take(std::size_t bytes, Now now) {
  if (bytes_per_second_ > 0) opens_at_ = std::max(opens_at_, now.boot - kBurst) + cost(bytes);
}

void TokenBucket::give_back(std::size_t bytes) {
  if (bytes_per_second_ > 0) opens_at_ -= cost(bytes);
}

void Speed::received(const Mark& mark, std::size_t bytes, Now now) {
  received_ += bytes;
  const Duration took = std::max<Duration>(now.boot - mark.at, std::chrono::microseconds(1));
  round_trip_ = round_trip_ == Duration{} ? took : std::min(took, round_trip_);
  if (bytes < kSampleBytes) return;
  const double sample = static_cast<double>(received_ - mark.received) / seconds(took);
  rate_ = sample > rate_ ? sample : rate_ + (sample - rate_) / 4;
}

Duration Speed::expected(std::size_t bytes) const {
  if (rate_ == 0) return std::max(kUnknown, round_trip_);
  return round_trip_ + duration(static_cast<double>(bytes) / rate_);
}

std::size_t Speed::window() const {
  if (rate_ == 0) return kFirstWindow;
  // A second's worth at least: where the route has become longer, or the first
  // reply said little, the rate grows again.
  const double on_the_way = 2 * rate_ * std::min(seconds(round_trip_), 1.0);
  return static_cast<std::size_t>(std::max(on_the_way, std::min<double>(rate_, kFirstWindow)));
}

}  // namespace skerry::exchange
