// SPDX-License-Identifier: Apache-2.0
// Identifiers as types, so that a node is never passed where a run is meant.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <ostream>
#include <string>
#include <utility>

namespace skerry {

template <class Tag>
class StringId {
 public:
  StringId() = default;
  explicit StringId(std::string value) : value_(std::move(value)) {}
  const std::string& str() const { return value_; }
  bool empty() const { return value_.empty(); }
  auto operator<=>(const StringId&) const = default;
  friend std::ostream& operator<<(std::ostream& out, const StringId& id) {
    return out << id.value_;
  }

 private:
  std::string value_;
};

using NodeId =
    StringId<struct NodeTag>;  // 32 hex digits: the first half of BLAKE2b-256 of the Ed25519 key
using RunId = StringId<struct RunTag>;  // "r-" and 10 hex digits, drawn by the coordinator
using DatasetName = StringId<struct DatasetTag>;  // chosen by a person, unique
using TokenId = StringId<struct TokenTag>;        // 12 hex digits

using ExpertIndex = std::uint32_t;  // 0 … K-1 within a run
using Step = std::uint64_t;         // optimiser steps of one expert since its start

// The subject of a lease.
struct ExpertId {
  RunId run;
  ExpertIndex index = 0;
  auto operator<=>(const ExpertId&) const = default;
  friend std::ostream& operator<<(std::ostream& out, const ExpertId& id) {
    return out << id.run << '/' << id.index;
  }
};

// The fencing number of a lease: generation(16) | counter(48). It only grows
// (S3); restoring a backup raises the generation.
class Epoch {
 public:
  constexpr Epoch() = default;
  constexpr explicit Epoch(std::uint64_t value) : value_(value) {}
  constexpr Epoch(std::uint16_t generation, std::uint64_t counter)
      : value_(std::uint64_t{generation} << 48 | (counter & 0xffffffffffffU)) {}
  constexpr std::uint64_t value() const { return value_; }
  constexpr std::uint16_t generation() const { return static_cast<std::uint16_t>(value_ >> 48); }
  constexpr std::uint64_t counter() const { return value_ & 0xffffffffffffU; }
  constexpr Epoch next() const { return Epoch(value_ + 1); }
  auto operator<=>(const Epoch&) const = default;
  friend std::ostream& operator<<(std::ostream& out, const Epoch& epoch) {
    return out << epoch.generation() << '.' << epoch.counter();
  }

 private:
  std::uint64_t value_ = 0;
};

}  // namespace skerry

template <class Tag>
struct std::hash<skerry::StringId<Tag>> {
  std::size_t operator()(const skerry::StringId<Tag>& id) const noexcept {
    return std::hash<std::string>{}(id.str());
  }
};
