// SPDX-License-Identifier: Apache-2.0
// The fuzz targets: every decoder of bytes from outside as a function of bytes.
// libFuzzer calls them, and every build replays the corpus through them.
//
// A target aborts (CHECK) if an accepted input breaks a promise of its decoder:
//   - It encodes again to bytes that are accepted and equal.
//   - Limits hold.
//   - Views lie inside the bytes.
//
// THREADS: one; targets that need files keep theirs between calls.
#pragma once

#include <span>
#include <string_view>

namespace skerry::fuzz {

enum class Verdict { kRefused, kAccepted };

// Where there are several things to decode, the first byte chooses; the sources
// say how.
Verdict control(std::string_view input);
Verdict engine(std::string_view input);
Verdict token(std::string_view input);
Verdict certificate(std::string_view input);
Verdict record(std::string_view input);
Verdict manifest(std::string_view input);
Verdict safetensors(std::string_view input);
Verdict idx(std::string_view input);
Verdict cifar(std::string_view input);
Verdict npy(std::string_view input);
Verdict tar(std::string_view input);
Verdict image(std::string_view input);
Verdict run_file(std::string_view input);
Verdict context(std::string_view input);

// Whether an input is a protobuf message, which can be changed field by field.
enum class Holds { kNoMessage, kMessage, kMessageAfterByte };

struct Target {
  std::string_view name;     // also of its corpus folder
  std::string_view planted;  // the bug that tests/planted/planted.h has for its decoder
  Verdict (*run)(std::string_view input);
  Holds holds = Holds::kNoMessage;
};
std::span<const Target> targets();
const Target* find_target(std::string_view name);

}  // namespace skerry::fuzz
