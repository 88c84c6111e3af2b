// SPDX-License-Identifier: Apache-2.0
// A libcuda.so.1 without a driver. The environment describes the machine's
// cards; CUDA's rules decide which of them are visible.
//
//   - SKERRY_FAKE_CARDS: NAME|UUID|BYTES|CAPABILITY|BUS|PARENT, separated by
//     semicolons, the fastest first. PARENT is the UUID of a MIG instance's
//     card; empty for a card.
//   - SKERRY_FAKE_CUDA_INIT: a number, which cuInit returns; "hang", cuInit
//     never returns; "crash", cuInit ends the process.
//   - SKERRY_FAKE_CUDA_BAD: the index of a card that CUDA lists but cannot
//     describe.
//   - SKERRY_FAKE_CUDA_REACHED: a file that cuInit creates.
//   - SKERRY_FAKE_DRIVER: a file with lines NAME=VALUE of the above, which win.
//     It may change while a process lives: a card falls off, a driver hangs.
//   - CUDA_VISIBLE_DEVICES, CUDA_DEVICE_ORDER: as in CUDA. The list ends at its
//     first entry that names no card. A card named twice leaves none. A MIG
//     instance hides all others.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace {

constexpr int kInvalidValue = 1;
constexpr int kNotInitialized = 3;
constexpr int kNoDevice = 100;
constexpr int kInvalidDevice = 101;
constexpr int kCapabilityMajor = 75;
constexpr int kCapabilityMinor = 76;

struct Card {
  std::string name, uuid, bytes, capability, bus, parent;
  std::string id() const { return (parent.empty() ? "GPU-" : "MIG-") + uuid; }
};

std::vector<Card> shown;
bool ready = false;

std::string setting(const char* name) {
  if (const char* const path = std::getenv("SKERRY_FAKE_DRIVER"); path != nullptr) {
    const std::string before = std::string(name) + "=";
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
      if (line.starts_with(before)) return line.substr(before.size());
    }
  }
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::vector<std::string> split(const std::string& words, char between) {
  std::vector<std::string> parts;
  std::istringstream in(words);
  for (std::string part; std::getline(in, part, between);) parts.push_back(part);
  return parts;
}

std::vector<Card> machine() {
  std::vector<Card> cards;
  for (const std::string& line : split(setting("SKERRY_FAKE_CARDS"), ';')) {
    std::vector<std::string> fields = split(line, '|');
    fields.resize(6);
    cards.push_back({fields[0], fields[1], fields[2], fields[3], fields[4], fields[5]});
  }
  if (setting("CUDA_DEVICE_ORDER") == "PCI_BUS_ID") {
    std::stable_sort(cards.begin(), cards.end(),
                     [](const Card& a, const Card& b) { return a.bus < b.bus; });
  }
  return cards;
}

const Card* named(const std::vector<Card>& all, const std::string& entry) {
  if (entry.starts_with("GPU-") || entry.starts_with("MIG-")) {
    const auto at = std::find_if(all.begin(), all.end(),
                                 [&](const Card& card) { return card.id().starts_with(entry); });
    return at == all.end() ? nullptr : &*at;
  }
  char* end = nullptr;
  const long index = std::strtol(entry.c_str(), &end, 10);
  const bool is_index = end != entry.c_str() && index >= 0 && index < static_cast<long>(all.size());
  return is_index ? &all[static_cast<std::size_t>(index)] : nullptr;
}

std::vector<Card> visible() {
  const std::vector<Card> all = machine();
  std::vector<Card> seen = all;
  if (std::getenv("CUDA_VISIBLE_DEVICES") != nullptr) {
    seen.clear();
    for (const std::string& entry : split(setting("CUDA_VISIBLE_DEVICES"), ',')) {
      const Card* card = named(all, entry);
      if (card == nullptr) break;
      const auto same = [&](const Card& other) { return other.id() == card->id(); };
      if (std::any_of(seen.begin(), seen.end(), same)) return {};
      seen.push_back(*card);
    }
  }
  const auto slice =
      std::find_if(seen.begin(), seen.end(), [](const Card& card) { return !card.parent.empty(); });
  return slice == seen.end() ? seen : std::vector<Card>{*slice};
}

const Card* at(int device) {
  return device >= 0 && device < static_cast<int>(shown.size())
             ? &shown[static_cast<std::size_t>(device)]
             : nullptr;
}

int copy_uuid(const std::string& uuid, char* out) {
  std::string digits = uuid;
  std::erase(digits, '-');
  if (digits.size() != 32) return kInvalidValue;
  for (std::size_t i = 0; i < 16; ++i)
    out[i] = static_cast<char>(std::strtol(digits.substr(2 * i, 2).c_str(), nullptr, 16));
  return 0;
}

}  // namespace

extern "C" {

int cuInit(unsigned) {
  if (const std::string file = setting("SKERRY_FAKE_CUDA_REACHED"); !file.empty())
    ::close(::open(file.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
  const std::string how = setting("SKERRY_FAKE_CUDA_INIT");
  while (how == "hang") ::pause();
  if (how == "crash") std::abort();
  if (!how.empty()) return std::atoi(how.c_str());
  shown = visible();
  ready = !shown.empty();
  return ready ? 0 : kNoDevice;
}

int cuGetErrorName(int error, const char** name) {
  *name = error == 802         ? "CUDA_ERROR_SYSTEM_NOT_READY"
          : error == kNoDevice ? "CUDA_ERROR_NO_DEVICE"
                               : nullptr;
  return *name == nullptr ? kInvalidValue : 0;
}

int cuDeviceGetCount(int* count) {
  *count = static_cast<int>(shown.size());
  return ready ? 0 : kNotInitialized;
}

int cuDeviceGet(int* device, int ordinal) {
  *device = ordinal;
  return at(ordinal) == nullptr ? kInvalidDevice : 0;
}

int cuDeviceGetName(char* name, int size, int device) {
  const Card* card = at(device);
  if (card == nullptr || size < 1 || setting("SKERRY_FAKE_CUDA_BAD") == std::to_string(device))
    return kInvalidDevice;
  std::strncpy(name, card->name.c_str(), static_cast<std::size_t>(size) - 1);
  name[size - 1] = '\0';
  return 0;
}

// The first form knows the card alone; the second, a MIG instance.
int cuDeviceGetUuid(char* uuid, int device) {
  const Card* card = at(device);
  if (card == nullptr) return kInvalidDevice;
  return copy_uuid(card->parent.empty() ? card->uuid : card->parent, uuid);
}

int cuDeviceGetUuid_v2(char* uuid, int device) {
  const Card* card = at(device);
  return card == nullptr ? kInvalidDevice : copy_uuid(card->uuid, uuid);
}

int cuDeviceTotalMem_v2(std::size_t* bytes, int device) {
  const Card* card = at(device);
  if (card == nullptr) return kInvalidDevice;
  *bytes = std::strtoull(card->bytes.c_str(), nullptr, 10);
  return 0;
}

int cuDeviceGetAttribute(int* value, int attribute, int device) {
  const Card* card = at(device);
  if (card == nullptr || (attribute != kCapabilityMajor && attribute != kCapabilityMinor))
    return kInvalidDevice;
  const std::vector<std::string> numbers = split(card->capability, '.');
  *value = std::atoi(numbers.at(attribute == kCapabilityMajor ? 0 : 1).c_str());
  return 0;
}
}
