// SPDX-License-Identifier: Apache-2.0
// Whether the engine can compute on this machine's NVIDIA cards, and what to do
// where it cannot: for who looks at a machine (`skerry doctor`) and for who
// offers its cards (skerryd). Pure: both ask the driver and the engine by
// themselves.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace skerry {

// The least driver for programs built with CUDA `cuda` ("13.0"), as NVIDIA's
// release notes have it: a whole major version shares one. nullopt: not known.
std::optional<std::string_view> least_driver(std::string_view cuda);

// Compares versions number by number: "570.124.06" is older than "580.65".
// False where either is no version.
bool is_older(std::string_view version, std::string_view than);

struct CardTrouble {
  std::string found;  // with what was needed, where that is known
  std::string todo;
};

// Why the engine sees none of the cards that a driver of this version lists.
// nullopt: it sees one, or does not say. `engine_words`: what `skerry-engine
// --version` prints. A driver that is too old and yet serves the engine
// (through NVIDIA's forward compatibility) is no trouble.
std::optional<CardTrouble> why_no_card(std::string_view engine_words, std::string_view driver);

}  // namespace skerry
