// SPDX-License-Identifier: Apache-2.0
#include "diffusion/testing/pretended_card.h"

#include <ATen/EmptyTensor.h>
#include <ATen/autocast_mode.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/native/transformers/sdp_utils_cpp.h>
#include <ATen/ops/_local_scalar_dense_native.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/resize_native.h>
#include <ATen/ops/view_native.h>
#include <sys/mman.h>
#include <torch/library.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "diffusion/testing/late_stream.h"

#include "diffusion/testing/emulated_card.h"

namespace skerry::diffusion::testing {
namespace {

constexpr c10::DeviceType kType = c10::DeviceType::PrivateUse1;

constexpr int kDevices = 2;
constexpr std::size_t kMemory = std::size_t{1} << 30;  // bytes of address space a device
constexpr std::size_t kAlignment = 64;

struct State {
  // Held while an operator runs: operators of all threads take turns.
  std::recursive_mutex mutex;
  CardCounts counts;
  void* handle = nullptr;
};
// Never destroyed, since tensors that are late may go with the process.
State& state() {
  static State& it = *new State;
  return it;
}
thread_local int running = 0;  // operators of this thread, inside each other
thread_local c10::DeviceIndex current = 0;
thread_local std::array<c10::StreamId, kDevices> streams{};  // the current ones

// Streams are never destroyed: their threads live as long as the process.
struct AllStreams {
  std::mutex mutex;
  std::map<std::pair<int, c10::StreamId>, LateStream*> by_device;
  c10::StreamId last = 1'000'000;  // beyond what set_stream() is given
};
AllStreams& all_streams() {
  static AllStreams* const it = new AllStreams;
  return *it;
}
LateStream& stream_of(int device, c10::StreamId id) {
  AllStreams& all = all_streams();
  const std::scoped_lock lock(all.mutex);
  LateStream*& stream = all.by_device[{device, id}];
  if (stream == nullptr) stream = new LateStream;
  return *stream;
}
LateStream& stream_of(const c10::Stream& stream) {
  return stream_of(stream.device_index(), stream.id());
}
LateStream& current_stream_of(int device) {
  return stream_of(device, streams[static_cast<std::size_t>(device)]);
}
// An operator comes after what its stream has to do on the card. One inside
// another has nothing to wait for, and would hold the lock meanwhile.
void catch_up() {
  if (running > 0) return;
  for (int device = 0; device < kDevices; ++device) {
    LateStream& stream = current_stream_of(device);
    stream.run_on_card(stream.queued());
  }
}
void wait_for_stream(LateStream& stream) {
  if (running == 0) stream.finish(stream.queued());
}

// A place in a stream's order.
struct Event {
  LateStream* stream = nullptr;
  std::uint64_t number = 0;
};

// Memory of one device: its pages fault unless an operator runs.
class Arena {
 public:
  Arena()
      : begin_(static_cast<char*>(::mmap(nullptr, kMemory, PROT_NONE,
                                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0))) {
    TORCH_CHECK(begin_ != MAP_FAILED, "no address space for the pretended card");
    free_[0] = kMemory;
  }
  void open(bool to_all) const {
    TORCH_CHECK(::mprotect(begin_, top_, to_all ? PROT_READ | PROT_WRITE : PROT_NONE) == 0,
                "the pretended card cannot protect its memory");
  }
  // Filled with NaN: what is read before it is written shows.
  void* take(std::size_t bytes) {
    const std::size_t size = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    TORCH_CHECK_WITH(OutOfMemoryError, held_ + size <= limit_,
                     "pretended card: out of memory: ", held_, " of ", limit_,
                     " bytes are taken, and ", size, " are asked for");
    const auto at =
        std::ranges::find_if(free_, [&](const auto& each) { return each.second >= size; });
    TORCH_CHECK_WITH(OutOfMemoryError, at != free_.end(), "pretended card: no piece of ", size);
    const auto [offset, room] = *at;
    free_.erase(at);
    if (room > size) free_[offset + size] = room - size;
    taken_[offset] = size;
    held_ += size;
    peak_ = std::max(peak_, held_);
    if (offset + size > top_) {
      top_ = (offset + size + 4095) / 4096 * 4096;
      open(true);
    }
    std::memset(begin_ + offset, 0xFF, size);
    return begin_ + offset;
  }
  bool give_back(const void* place) {
    if (place < begin_ || place >= begin_ + kMemory) return false;
    const auto block =
        taken_.find(static_cast<std::size_t>(static_cast<const char*>(place) - begin_));
    auto [offset, size] = *block;
    taken_.erase(block);
    held_ -= size;
    if (const auto after = free_.find(offset + size); after != free_.end()) {
      size += after->second;
      free_.erase(after);
    }
    const auto before = free_.lower_bound(offset);
    if (before != free_.begin() && std::prev(before)->first + std::prev(before)->second == offset) {
      std::prev(before)->second += size;
    } else {
      free_[offset] = size;
    }
    return true;
  }
  void set_limit(std::size_t bytes) { limit_ = bytes; }
  std::size_t held() const { return held_; }
  std::size_t peak() const { return peak_; }
  void forget_peak() { peak_ = held_; }

 private:
  char* begin_;
  std::map<std::size_t, std::size_t> free_, taken_;  // bytes by offset
  std::size_t held_ = 0, peak_ = 0, top_ = 0, limit_ = kMemory;
};
Arena& arena(int device) {
  static std::array<Arena, kDevices> all;
  return all[static_cast<std::size_t>(device)];
}

// While it lives, the pages of both devices can be touched.
class Running {
 public:
  Running() : lock_(state().mutex), is_nested_(running++ > 0) {
    if (!is_nested_) open(true);
  }
  ~Running() {
    if (--running == 0) open(false);
  }
  bool is_nested() const { return is_nested_; }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

 private:
  static void open(bool to_all) {
    for (int device = 0; device < kDevices; ++device) arena(device).open(to_all);
  }
  std::scoped_lock<std::recursive_mutex> lock_;
  bool is_nested_;
};

void give_back(void* place) {
  const std::scoped_lock lock(state().mutex);
  if (place != nullptr && !arena(0).give_back(place)) arena(1).give_back(place);
}

struct Memory final : c10::Allocator {
  c10::DataPtr allocate(std::size_t bytes) override {
    const Running now;
    void* const begin = bytes == 0 ? nullptr : arena(current).take(bytes);
    return {begin, begin, &give_back, c10::Device(kType, current)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &give_back; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    const Running now;
    std::memcpy(to, from, bytes);
  }
};
Memory& memory() {
  static Memory it;
  return it;
}

// Memory of the host that a card copies from while the program goes on.
std::set<const void*>& pinned_blocks() {
  static auto& it = *new std::set<const void*>;
  return it;
}
void free_pinned(void* begin) {
  const std::scoped_lock lock(state().mutex);
  pinned_blocks().erase(begin);
  std::free(begin);
}
struct PinnedMemory final : c10::Allocator {
  c10::DataPtr allocate(std::size_t bytes) override {
    const std::scoped_lock lock(state().mutex);
    void* const begin = bytes == 0
                            ? nullptr
                            : std::aligned_alloc(kAlignment, (bytes / kAlignment + 1) * kAlignment);
    if (begin != nullptr) pinned_blocks().insert(begin);
    return {begin, begin, &free_pinned, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_pinned; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }
};
PinnedMemory& pinned_memory() {
  static PinnedMemory it;
  return it;
}

struct Guard final : c10::impl::DeviceGuardImplInterface {
  Guard() = default;
  explicit Guard(c10::DeviceType /*type*/) {}
  c10::DeviceType type() const override { return kType; }
  c10::Device exchangeDevice(c10::Device device) const override {
    return {kType, std::exchange(current, device.index())};
  }
  c10::Device getDevice() const override { return {kType, current}; }
  void setDevice(c10::Device device) const override { current = device.index(); }
  void uncheckedSetDevice(c10::Device device) const noexcept override { current = device.index(); }
  c10::Stream getStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::UNSAFE, device,
                       streams[static_cast<std::size_t>(device.index())]);
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool /*is_first*/) const override {
    AllStreams& all = all_streams();
    const std::scoped_lock lock(all.mutex);
    return c10::Stream(c10::Stream::UNSAFE, device, ++all.last);
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::DEFAULT, device);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    c10::StreamId& id = streams[static_cast<std::size_t>(stream.device_index())];
    return c10::Stream(c10::Stream::UNSAFE, stream.device(), std::exchange(id, stream.id()));
  }
#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 11
  void* getStreamNativeHandle(const c10::Stream /*stream*/) const override {
    return state().handle;
  }
#endif
  c10::DeviceIndex deviceCount() const noexcept override { return kDevices; }
  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex /*index*/,
              const c10::EventFlag /*flag*/) const override {
    if (*event == nullptr) *event = new Event;
    LateStream& late = stream_of(stream);
    *static_cast<Event*>(*event) = {&late, late.queued()};
  }
  void block(void* event, const c10::Stream& stream) const override {
    const Event at = *static_cast<Event*>(event);
    stream_of(stream).queue({.on_card = [at] { at.stream->run_on_card(at.number); },
                             .on_host = [at] { at.stream->finish(at.number); }});
  }
  bool queryEvent(void* event) const override {
    const auto* const at = static_cast<const Event*>(event);
    return at == nullptr || at->stream->is_finished(at->number);
  }
  void synchronizeEvent(void* event) const override {
    {
      const std::scoped_lock lock(state().mutex);
      ++state().counts.event_waits;
    }
    const auto* const at = static_cast<const Event*>(event);
    at->stream->finish(at->number);
  }
  void destroyEvent(void* event, const c10::DeviceIndex /*index*/) const noexcept override {
    delete static_cast<Event*>(event);
  }
  bool queryStream(const c10::Stream& stream) const override {
    LateStream& late = stream_of(stream);
    return late.is_finished(late.queued());
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    count_wait(stream.device_index());
    wait_for_stream(stream_of(stream));
  }
  void synchronizeDevice(const c10::DeviceIndex index) const override {
    count_wait(index);
    std::vector<LateStream*> of_device;
    {
      AllStreams& all = all_streams();
      const std::scoped_lock lock(all.mutex);
      for (const auto& [place, stream] : all.by_device) {
        if (place.first == index) of_device.push_back(stream);
      }
    }
    for (LateStream* const stream : of_device) wait_for_stream(*stream);
  }

 private:
  static void count_wait(int device) {
    const std::scoped_lock lock(state().mutex);
    ++state().counts.waits[device];
  }
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

// The kernels of card_kernels.cu, each launch an operator.
struct PretendedKernels final : emulated::EmulatedCard {
  void launch(const std::string& name, Grid grid, void* stream, void** arguments) override {
    catch_up();
    const Running now;
    ++state().counts.operators;
    ++state().counts.launches;
    EmulatedCard::launch(name, grid, stream, arguments);
  }
};

struct Hooks final : at::PrivateUse1HooksInterface, CardMaker {
  std::unique_ptr<Card> make_card(int /*index*/) const override {
    return std::make_unique<PretendedKernels>();
  }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex /*index*/) const override { return true; }
  void init() const override {}
  c10::DeviceIndex getCurrentDevice() const override { return current; }
  bool isPinnedPtr(const void* data) const override {
    const std::scoped_lock lock(state().mutex);
    return pinned_blocks().contains(data);
  }
  c10::Allocator* getPinnedMemoryAllocator() const override { return &pinned_memory(); }
};

// The same memory, as the CPU sees it.
at::Tensor on_host(const at::Tensor& tensor) {
  if (tensor.is_cpu()) return tensor;
  return at::from_blob(tensor.data_ptr(), tensor.sizes(), tensor.strides(),
                       tensor.options().device(at::kCPU).requires_grad(false));
}

at::Tensor empty(c10::IntArrayRef size, std::optional<at::ScalarType> type,
                 std::optional<at::Layout> /*layout*/, std::optional<at::Device> device,
                 std::optional<bool> /*pin*/, std::optional<at::MemoryFormat> format) {
  const c10::DeviceGuard guard(device.value_or(c10::Device(kType, current)));
  return at::detail::empty_generic(size, &memory(),
                                   c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   c10::dtype_or_default(type), format);
}
at::Tensor empty_strided(c10::IntArrayRef size, c10::IntArrayRef stride,
                         std::optional<at::ScalarType> type, std::optional<at::Layout> /*layout*/,
                         std::optional<at::Device> device, std::optional<bool> /*pin*/) {
  const c10::DeviceGuard guard(device.value_or(c10::Device(kType, current)));
  return at::detail::empty_strided_generic(size, stride, &memory(),
                                           c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                           c10::dtype_or_default(type));
}
at::Tensor as_strided(const at::Tensor& tensor, c10::SymIntArrayRef size,
                      c10::SymIntArrayRef stride, std::optional<c10::SymInt> offset) {
  return at::native::as_strided_tensorimpl(
      tensor, C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride),
      offset ? std::optional(offset->expect_int()) : std::nullopt);
}
const at::Tensor& resize(const at::Tensor& tensor, c10::SymIntArrayRef size,
                         std::optional<at::MemoryFormat> format) {
  return at::native::resize_(tensor, C10_AS_INTARRAYREF_SLOW(size), format);
}
at::Tensor reshape_alias(const at::Tensor& tensor, c10::SymIntArrayRef size,
                         c10::SymIntArrayRef stride) {
  return at::native::_reshape_alias(tensor, C10_AS_INTARRAYREF_SLOW(size),
                                    C10_AS_INTARRAYREF_SLOW(stride));
}
at::Tensor view(const at::Tensor& tensor, c10::SymIntArrayRef size) {
  return at::native::view(tensor, C10_AS_INTARRAYREF_SLOW(size));
}

void copy_now(const at::Tensor& from, const at::Tensor& to) {
  const Running now;
  const at::NoGradGuard no_grad;
  on_host(to).copy_(on_host(from));
}
at::Tensor copy_on_host(const at::Tensor& tensor) {
  const Running now;
  const at::NoGradGuard no_grad;
  return on_host(tensor).clone(at::MemoryFormat::Contiguous);
}

// The tensors of a queued copy stay alive, as in LibTorch's allocators.
void queue_to_host(LateStream& stream, const at::Tensor& from, const at::Tensor& to) {
  // What is read too early is not what was there before.
  if (to.is_contiguous()) std::memset(to.data_ptr(), 0xFF, to.nbytes());
  const auto taken = std::make_shared<at::Tensor>();
  stream.queue({.on_card = [from, taken] { *taken = copy_on_host(from); },
                .on_host = [to, taken] { copy_now(*taken, to); }});
}
void queue_to_card(LateStream& stream, const at::Tensor& from, const at::Tensor& to) {
  const auto taken = std::make_shared<at::Tensor>();
  stream.queue({.on_card =
                    [from, to, taken] {
                      *taken = copy_on_host(from);
                      copy_now(*taken, to);
                    },
                .on_host =
                    [from, taken] {
                      const at::Tensor now = copy_on_host(from);
                      if (std::memcmp(now.data_ptr(), taken->data_ptr(), now.nbytes()) == 0) return;
                      std::fputs("pinned memory was written before its copy was waited for\n",
                                 stderr);
                      std::abort();
                    }});
}

// Within the card a copy is an operator like others. What an operator copies
// for itself is none of the program's.
at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  if (running > 0 || !(from.is_cpu() || to.is_cpu())) {
    catch_up();
    const Running now;
    if (!now.is_nested()) ++state().counts.operators;
    copy_now(from, to);
    return to;
  }
  bool is_pinned = false;
  {
    const std::scoped_lock lock(state().mutex);
    ++(non_blocking ? state().counts.queued_copies : state().counts.waited_copies);
    is_pinned = from.is_cpu() && pinned_blocks().contains(from.storage().data());
  }
  LateStream& stream = current_stream_of((to.is_cpu() ? from : to).device().index());
  if (non_blocking && to.is_cpu()) {
    queue_to_host(stream, from, to);
  } else if (non_blocking && is_pinned) {
    queue_to_card(stream, from, to);
  } else {
    // A driver reads unpinned memory before it returns.
    if (non_blocking) {
      stream.run_on_card(stream.queued());
    } else {
      wait_for_stream(stream);
    }
    copy_now(from, to);
  }
  return to;
}
at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  to.resize_(from.sizes());
  return copy_from(from, to, false);
}
at::Scalar read_number(const at::Tensor& tensor) {
  wait_for_stream(current_stream_of(tensor.device().index()));
  const Running now;
  if (!now.is_nested()) ++state().counts.numbers_read;
  return at::native::_local_scalar_dense_cpu(on_host(tensor));
}
void compute_on_host(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  catch_up();
  const Running now;
  ++state().counts.operators;
  at::native::cpu_fallback(op, stack);
  if (op.schema().name() == "aten::nonzero") ++state().counts.numbers_read;  // how many there are
}

// A card has one operator for attention and one for its gradients. As those of
// CUDA, they write [B,T,heads,head] and return it as [B,heads,T,head].
at::Tensor on_card(const at::Tensor& host, c10::Device device) {
  const at::Tensor there =
      at::empty_strided(host.sizes(), host.strides(), host.options().device(device));
  copy_now(host, there);
  return there;
}
template <class Body>
auto as_one_operator(const Body& body) {
  catch_up();
  const Running now;
  ++state().counts.operators;
  const at::AutoDispatchBelowAutograd below;
  return body();
}
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, c10::SymInt, c10::SymInt, at::Tensor,
           at::Tensor, at::Tensor>
attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
          const std::optional<at::Tensor>& bias, double dropout, bool is_causal,
          bool /*return_mask*/, std::optional<double> scale) {
  return as_one_operator([&] {
    const auto added = bias ? std::optional(on_host(*bias)) : std::nullopt;
    const auto [out, sums] = at::_scaled_dot_product_flash_attention_for_cpu(
        on_host(query), on_host(key), on_host(value), dropout, is_causal, added, scale);
    const auto none = [&] { return at::empty({0}, query.options()); };
    return std::tuple(on_card(out, query.device()), on_card(sums, query.device()), none(), none(),
                      c10::SymInt(query.size(2)), c10::SymInt(key.size(2)), none(), none(), none());
  });
}
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> attention_backward(
    const at::Tensor& gradient, const at::Tensor& query, const at::Tensor& key,
    const at::Tensor& value, const at::Tensor& bias, std::array<bool, 4> /*needed*/,
    const at::Tensor& out, const at::Tensor& sums, const at::Tensor& /*query_places*/,
    const at::Tensor& /*key_places*/, c10::SymInt /*query_rows*/, c10::SymInt /*key_rows*/,
    double dropout, bool is_causal, const at::Tensor& /*seed*/, const at::Tensor& /*offset*/,
    std::optional<double> scale) {
  return as_one_operator([&] {
    const auto [for_query, for_key, for_value] =
        at::_scaled_dot_product_flash_attention_for_cpu_backward(
            on_host(gradient), on_host(query), on_host(key), on_host(value), on_host(out),
            on_host(sums), dropout, is_causal,
            bias.defined() ? on_host(bias) : std::optional<at::Tensor>(), scale);
    const c10::Device device = query.device();
    return std::tuple(on_card(for_query, device), on_card(for_key, device),
                      on_card(for_value, device), at::Tensor());
  });
}
std::int64_t choose_attention(const at::Tensor& /*query*/, const at::Tensor& /*key*/,
                              const at::Tensor& /*value*/,
                              const std::optional<at::Tensor>& /*mask*/, double /*dropout*/,
                              bool /*is_causal*/, std::optional<double> /*scale*/,
                              bool /*are_groups_shared*/) {
  return static_cast<std::int64_t>(sdp::SDPBackend::overrideable);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("_scaled_dot_product_fused_attention_overrideable", attention);
  library.impl("_scaled_dot_product_fused_attention_overrideable_backward", attention_backward);
  library.impl("empty.memory_format", empty);
  library.impl("empty_strided", empty_strided);
  library.impl("as_strided", as_strided);
  library.impl("resize_", resize);
  library.impl("_reshape_alias", reshape_alias);
  library.impl("view", view);
  library.impl("_copy_from", copy_from);
  library.impl("_copy_from_and_resize", copy_from_and_resize);
  library.impl("_local_scalar_dense", read_number);
}
TORCH_LIBRARY_IMPL(_, PrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&compute_on_host>());
}

// As for CUDA: products in the narrow type, sums in fp32.
TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFallthrough());
}
#define SKERRY_NARROW(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
#define SKERRY_WIDE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
  AT_FORALL_LOWER_PRECISION_FP(SKERRY_NARROW)
  AT_FORALL_FP32(SKERRY_WIDE)
}
#undef SKERRY_NARROW
#undef SKERRY_WIDE

}  // namespace
}  // namespace skerry::diffusion::testing

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &skerry::diffusion::testing::choose_attention)
}  // namespace at::native

namespace skerry::diffusion::testing {

torch::Device PretendedCard::device(int index) {
  static std::once_flag once;
  std::call_once(once, [] {
    c10::register_privateuse1_backend("pretended");
    at::RegisterPrivateUse1HooksInterface(
        new Hooks);  // LibTorch keeps it for the life of the process
    c10::SetAllocator(kType, &memory());
  });
  return {kType, static_cast<c10::DeviceIndex>(index)};
}

const CardCounts& PretendedCard::counts() { return state().counts; }
std::size_t PretendedCard::held_bytes(int index) { return arena(index).held(); }
void PretendedCard::set_limit(std::size_t bytes) {
  const std::scoped_lock lock(state().mutex);
  for (int device = 0; device < kDevices; ++device) arena(device).set_limit(bytes);
}
void PretendedCard::forget() {
  state().counts = {};
  for (int device = 0; device < kDevices; ++device) arena(device).forget_peak();
}
std::size_t PretendedCard::peak_bytes(int index) { return arena(index).peak(); }
void PretendedCard::set_stream(std::int64_t id, void* handle) {
  streams.fill(id);
  state().handle = handle;
}

}  // namespace skerry::diffusion::testing
