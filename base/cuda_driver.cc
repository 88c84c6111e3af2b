// SPDX-License-Identifier: Apache-2.0
#include "base/cuda_driver.h"

#include <charconv>
#include <vector>

#include "base/text.h"

namespace skerry {
namespace {

// Empty: not a version.
std::vector<unsigned> numbers_of(std::string_view version) {
  std::vector<unsigned> numbers;
  const char* at = version.data();
  const char* const end = at + version.size();
  while (true) {
    unsigned number = 0;
    const auto [rest, error] = std::from_chars(at, end, number);
    if (error != std::errc{}) return {};
    numbers.push_back(number);
    if (rest == end) return numbers;
    if (*rest != '.') return {};
    at = rest + 1;
  }
}

// "13.0" of "… for CUDA 13.0, …"; empty where the engine does not say.
std::string_view cuda_of(std::string_view engine_words) {
  constexpr std::string_view kBefore = " for CUDA ";
  const std::size_t at = engine_words.find(kBefore);
  if (at == std::string_view::npos) return {};
  const std::string_view rest = engine_words.substr(at + kBefore.size());
  return rest.substr(0, rest.find_first_not_of("0123456789."));
}

}  // namespace

std::optional<std::string_view> least_driver(std::string_view cuda) {
  const std::vector<unsigned> version = numbers_of(cuda);
  switch (version.empty() ? 0 : version.front()) {
    case 11:
      return "450.80.02";
    case 12:
      return "525.60.13";
    case 13:
      return "580.65";
    default:
      return std::nullopt;
  }
}

bool is_older(std::string_view version, std::string_view than) {
  const std::vector<unsigned> left = numbers_of(version), right = numbers_of(than);
  return !left.empty() && !right.empty() && left < right;
}

std::optional<CardTrouble> why_no_card(std::string_view engine_words, std::string_view driver) {
  if (engine_words.find("no CUDA device") == std::string_view::npos) return std::nullopt;
  if (engine_words.find("without CUDA") != std::string_view::npos) {
    return CardTrouble{"the engine is built without CUDA",
                       "build it against a LibTorch with CUDA: `./dev setup --torch DIR`"};
  }
  const std::string_view cuda = cuda_of(engine_words);
  const auto needed = least_driver(cuda);
  if (needed && is_older(driver, *needed)) {
    return CardTrouble{text("driver ", driver, ", where the engine's CUDA ", cuda, " needs ",
                            *needed, " or newer"),
                       "rent a machine or an image with a newer driver, or build the engine "
                       "against a LibTorch of an older "
                       "CUDA: `./dev setup --torch DIR`"};
  }
  return CardTrouble{"the engine can use none of them",
                     "are their devices passed into the container?"};
}

}  // namespace skerry
