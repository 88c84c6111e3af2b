// SPDX-License-Identifier: Apache-2.0
// Every decoder of bytes from outside as a function of bytes: what libFuzzer
// calls, and what the corpus is replayed through in every build. A target
// aborts (CHECK) where an accepted input breaks a promise of its decoder: it
// encodes again to something that is accepted and equal, limits hold, views lie
// inside the bytes. Thread rule: one thread; targets that need files keep
// theirs from call to call.
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
