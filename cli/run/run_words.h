// SPDX-License-Identifier: Apache-2.0
// The words by which a run file names what the protocol numbers: read and shown
// from one table.
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

// The first word for a number that a newer version wrote.
template <class Enum, std::size_t N>
std::string_view word_of(const Words<Enum, N>& words, Enum value) {
  for (const auto& [word, named] : words) {
    if (named == value) return word;
  }
  return words[0].first;
}

}  // namespace skerry::cli
