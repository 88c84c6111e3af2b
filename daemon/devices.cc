#include "daemon/devices.h"

#include <dlfcn.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <sstream>
#include <utility>

#include "base/cuda_driver.h"
#include "base/log.h"
#include "base/programs.h"
#include "base/text.h"
#include "protocol/limits.h"

namespace skerry::daemon {
namespace {

struct Gpu {
  std::string name;
  std::uint64_t memory_bytes = 0;
};

// The functions of the driver's management library that are needed, by the names its ABI has kept since 2012.
class Nvml {
 public:
  Nvml() {
    library_ = ::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library_ == nullptr) return;
    const auto init = find<int (*)()>("nvmlInit_v2");
    count_ = find<int (*)(unsigned*)>("nvmlDeviceGetCount_v2");
    handle_ = find<int (*)(unsigned, void**)>("nvmlDeviceGetHandleByIndex_v2");
    name_ = find<int (*)(void*, char*, unsigned)>("nvmlDeviceGetName");
    memory_ = find<int (*)(void*, Memory*)>("nvmlDeviceGetMemoryInfo");
    driver_ = find<int (*)(char*, unsigned)>("nvmlSystemGetDriverVersion");
    works_ = init && count_ && handle_ && name_ && memory_ && init() == 0;
  }
  ~Nvml() {
    if (works_) {
      if (const auto shutdown = find<int (*)()>("nvmlShutdown")) shutdown();
    }
    if (library_ != nullptr) ::dlclose(library_);
  }
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  std::string driver_version() const {
    std::array<char, 80> version{};
    const bool told = works_ && driver_ && driver_(version.data(), version.size()) == 0;
    return told ? version.data() : "unknown";
  }

  std::vector<Gpu> gpus() const {
    std::vector<Gpu> found;
    unsigned count = 0;
    if (!works_ || count_(&count) != 0) return found;
    for (unsigned i = 0; i < count; ++i) {
      void* device = nullptr;
      std::array<char, 96> name{};
      Memory memory;
      if (handle_(i, &device) != 0 || name_(device, name.data(), name.size()) != 0) continue;
      if (memory_(device, &memory) != 0) memory = {};
      found.push_back({name.data(), memory.total});
    }
    return found;
  }

 private:
  struct Memory {
    unsigned long long total = 0, free = 0, used = 0;
  };
  template <class Function>
  Function find(const char* name) const {
    return reinterpret_cast<Function>(::dlsym(library_, name));
  }
  void* library_ = nullptr;
  bool works_ = false;
  int (*count_)(unsigned*) = nullptr;
  int (*handle_)(unsigned, void**) = nullptr;
  int (*name_)(void*, char*, unsigned) = nullptr;
  int (*memory_)(void*, Memory*) = nullptr;
  int (*driver_)(char*, unsigned) = nullptr;
};

// The engine counts only what CUDA_VISIBLE_DEVICES lets it see, in that order. A name (UUID) is taken for what it is: one
// more device of the first kind.
std::vector<Gpu> visible(std::vector<Gpu> all) {
  const char* list = std::getenv("CUDA_VISIBLE_DEVICES");
  if (list == nullptr) return all;
  std::vector<Gpu> seen;
  std::istringstream items(list);
  for (std::string item; std::getline(items, item, ',');) {
    char* end = nullptr;
    const long index = std::strtol(item.c_str(), &end, 10);
    const bool is_number = end != item.c_str() && *end == '\0';
    if (is_number && (index < 0 || index >= static_cast<long>(all.size()))) break;
    if (all.empty()) break;
    seen.push_back(all[is_number ? static_cast<std::size_t>(index) : 0]);
  }
  return seen;
}

std::uint64_t physical_memory() {
  const long pages = ::sysconf(_SC_PHYS_PAGES);
  const long size = ::sysconf(_SC_PAGE_SIZE);
  return pages > 0 && size > 0 ? static_cast<std::uint64_t>(pages) * static_cast<std::uint64_t>(size) : 0;
}

}  // namespace

Result<std::vector<DeviceSlot>> find_slots(unsigned wanted) {
  if (wanted > protocol::kSlots) {
    return fail(ErrorCode::kInvalid, text("slots: expected at most ", protocol::kSlots, ", found ", wanted));
  }
  const std::vector<Gpu> gpus = visible(Nvml().gpus());
  std::size_t count = wanted != 0 ? wanted : std::max<std::size_t>(1, gpus.size());
  count = std::min(count, protocol::kSlots);
  std::vector<DeviceSlot> slots(count);
  for (std::size_t i = 0; i < count; ++i) {
    DeviceSlot& slot = slots[i];
    slot.description.set_index(static_cast<std::uint32_t>(i));
    if (gpus.empty()) {
      slot.description.set_device("cpu");
      slot.description.set_memory_bytes(physical_memory());
      continue;
    }
    const std::size_t gpu = i % gpus.size();
    slot.device = static_cast<int>(gpu);
    slot.description.set_device(gpus[gpu].name);
    slot.description.set_memory_bytes(gpus[gpu].memory_bytes);
  }
  return slots;
}

std::string visible_driver() {
  const Nvml nvml;
  return visible(nvml.gpus()).empty() ? "" : nvml.driver_version();
}

Result<void> check_cards(const std::string& engine, const std::string& driver) {
  std::string words;
  const Result<int> ran = run_and_read({engine, "--version"}, [&](const std::string& line) {
    if (words.empty()) words = line;
  });
  if (!ran || *ran != 0) {
    log_warning("the engine does not say which cards it can use", {{"engine", engine}});
    return {};
  }
  if (const auto trouble = why_no_card(words, driver)) {
    return fail(ErrorCode::kInvalid,
                text("this machine has a card, and the engine sees none: ", trouble->found, ": ",
                     trouble->todo, "; to train on the CPU instead, set CUDA_VISIBLE_DEVICES to nothing"));
  }
  return {};
}

}  // namespace skerry::daemon
