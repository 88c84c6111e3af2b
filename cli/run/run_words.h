// SPDX-License-Identifier: Apache-2.0
// The names in a run file for the protocol's enumerators. Parser and printer
// share these tables.
#pragma once

#include <array>
#include <string_view>
#include <utility>

#include "protocol/skerry.pb.h"

namespace skerry::cli {

template <class Enum, std::size_t N>
using Words = std::array<std::pair<std::string_view, Enum>, N>;

inline constexpr Words<pb::Schedule, 4> kScheduleWords{{{"constant", pb::SCHEDULE_CONSTANT},
                                                        {"linear", pb::SCHEDULE_LINEAR},
                                                        {"cosine", pb::SCHEDULE_COSINE},
                                                        {"cyclic", pb::SCHEDULE_CYCLIC}}};
inline constexpr Words<pb::Kernels, 2> kKernelsWords{
    {{"reference", pb::KERNELS_REFERENCE}, {"fast", pb::KERNELS_FAST}}};
inline constexpr Words<pb::TimeDistribution, 2> kTimeDistributionWords{
    {{"uniform", pb::TIME_DISTRIBUTION_UNIFORM}, {"lognormal", pb::TIME_DISTRIBUTION_LOGNORMAL}}};
inline constexpr Words<pb::StateForm, 2> kStateWords{
    {{"full", pb::STATE_FORM_FULL}, {"lean", pb::STATE_FORM_LEAN}}};

// RETURNS: the name of `value`; for a number from a newer version, the first
// name.
template <class Enum, std::size_t N>
std::string_view word_of(const Words<Enum, N>& words, Enum value) {
  for (const auto& [word, named] : words) {
    if (named == value) return word;
  }
  return words[0].first;
}

}  // namespace skerry::cli
