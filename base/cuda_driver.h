// SPDX-License-Identifier: Apache-2.0
// Decides whether the engine can compute on this machine's NVIDIA cards, and
// what to do if it cannot. `skerry doctor` uses it, and so does skerryd when it
// offers its cards. Pure: both ask the driver and the engine themselves.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace skerry {

// RETURNS: the oldest driver for programs built with CUDA `cuda` ("13.0"), as
// in NVIDIA's release notes: all minor versions share one. nullopt: not known.
std::optional<std::string_view> least_driver(std::string_view cuda);

// Compares versions number by number: "570.124.06" is older than "580.65".
// False if either is not a version.
bool is_older(std::string_view version, std::string_view than);

struct CardTrouble {
  std::string found;  // and what was needed, if known
  std::string todo;
};

// RETURNS: why the engine sees none of the cards that a driver of this version
// lists. nullopt: it sees one, or does not report. `engine_words` is the output
// of `skerry-engine --version`. A driver that is too old but serves the engine
// through NVIDIA's forward compatibility is no trouble.
std::optional<CardTrouble> why_no_card(std::string_view engine_words, std::string_view driver);

}  // namespace skerry
