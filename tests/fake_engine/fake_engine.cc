// SPDX-License-Identifier: Apache-2.0
// skerry-fake-engine: speaks the engine's channel without LibTorch, for fast
// tests of everything around it.
//
//   - SKERRY_FAKE_STEP_MS: time of a step (1).
//   - SKERRY_FAKE_WEIGHTS: floats in each of the four tensors (256).
//   - SKERRY_FAKE_CRASH_AT: aborts at this step.
//   - SKERRY_FAKE_WAIT_AT: reports this step, and waits until told to stop.
//   - SKERRY_FAKE_HANG_AT: falls silent at this step.
//   - SKERRY_FAKE_NON_FINITE_AT: reports non-finite weights at this step.
//   - SKERRY_FAKE_OUT_OF_MEMORY_AT: reports out of memory at this step.
//   - SKERRY_FAKE_CANNOT_TRAIN: `check` fails if CUDA_VISIBLE_DEVICES begins
//     with this.
//   - SKERRY_FAKE_LOST_CARD: a file. Once it names a card, engines that have it
//     in CUDA_VISIBLE_DEVICES report a failed card.
//   - SKERRY_FAKE_VERSION: what --version prints.
//   - SKERRY_FAKE_ONCE: a file. The fault happens only if the file is missing,
//     and creates it.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/text.h"
#include "protocol/channel.h"
#include "protocol/validate_engine.h"
#include "storage/files.h"
#include "tests/fake_engine/chain.h"

namespace skerry::fake {
namespace {

constexpr Duration kProgressEvery = std::chrono::milliseconds(100);

std::uint64_t setting(const char* name, std::uint64_t otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : std::strtoull(value, nullptr, 10);
}

class Engine {
 public:
  explicit Engine(int fd) : channel_(UniqueFd(fd)) {}

  int run() {
    while (!start_) {
      if (!read(Duration(-1)) || stop_) return 0;
    }
    pb::EngineEvent starting;
    starting.mutable_starting()->set_phase("reading the shards");
    if (!say(starting)) return 0;
    if (const Result<void> began = begin(); !began)
      return report(pb::EngineEvent::FAILURE_BAD_INPUT, began.error().message);
    pb::EngineEvent ready;
    ready.mutable_ready()->set_fingerprint("fake 1");
    ready.mutable_ready()->set_device(device());
    ready.mutable_ready()->set_parameters(weights_);
    ready.mutable_ready()->set_step(chain_.step);
    if (!say(ready)) return 0;
    return train();
  }

 private:
  std::string device() const {
    const char* cards = std::getenv("CUDA_VISIBLE_DEVICES");
    return start_->device() < 0 || cards == nullptr
               ? "fake"
               : text("device ", start_->device(), " of ", cards);
  }

  Result<void> begin() {
    if (start_->shard_paths_size() == 0) return fail(ErrorCode::kInvalid, "no shards");
    for (const std::string& path : start_->shard_paths()) TRY(storage::MappedFile::open(path));
    if (start_->resume_bytes() == 0) {
      chain_ = Chain::start(start_->train().seed(), start_->expert());
    } else {
      ASSIGN_OR_RETURN(const auto file,
                       storage::Safetensors::map(resume_.get(), start_->resume_bytes()));
      ASSIGN_OR_RETURN(chain_, Chain::decode(file));
      if (chain_.seed != start_->train().seed() || chain_.expert != start_->expert()) {
        return fail(ErrorCode::kInvalid, "the checkpoint is of another seed or expert");
      }
    }
    round_from_ = snapshot_from_ = chain_.step;
    round_began_ = snapshot_began_ = now();
    return {};
  }

  Duration now() const { return clock_.now().boot; }
  bool at_target() const { return chain_.step >= start_->train().steps(); }

  int train() {
    const auto step_time = std::chrono::milliseconds(setting("SKERRY_FAKE_STEP_MS", 1));
    while (!at_target()) {
      // A step is a wait for words from the daemon that may be cut short by
      // one.
      for (const Duration until = now() + step_time; now() < until && !stop_;) {
        if (!read(until - now())) return 0;
      }
      if (!read({})) return 0;
      if (stop_ && !stop_->finish_round()) break;
      chain_.advance(start_->attempt());
      if (const std::optional<int> code = mishap()) return *code;
      if (!progress()) return 0;
      if (chain_.step == setting("SKERRY_FAKE_WAIT_AT", 0) && !wait_for_stop()) return 0;
      if (!round_ended()) continue;
      if (stop_) break;
      round_from_ = chain_.step;
      round_began_ = now();
      if (!snapshot_waits_ && !snapshot()) return 0;
    }
    if (stop_ && !stop_->finish_round() && !stop_->snapshot_now()) return finish();
    while (snapshot_waits_) {
      if (!read(Duration(-1))) return 0;
    }
    if (chain_.step > snapshot_from_ && !snapshot()) return 0;
    return finish();
  }

  bool round_ended() const {
    if (at_target()) return true;
    if (plan_.round_steps() > 0) return chain_.step - round_from_ >= plan_.round_steps();
    return now() - round_began_ >= std::chrono::duration<double>(plan_.round_seconds());
  }

  std::optional<int> mishap() {
    const auto happens = [&](const char* name) {
      if (setting(name, 0) != chain_.step) return false;
      const char* once = std::getenv("SKERRY_FAKE_ONCE");
      if (once == nullptr) return true;
      const int fd = ::open(once, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
      if (fd >= 0) ::close(fd);
      return fd >= 0;
    };
    if (happens("SKERRY_FAKE_CRASH_AT")) {
      std::fprintf(stderr, "crashing at step %llu as told\n",
                   static_cast<unsigned long long>(chain_.step));
      std::abort();
    }
    if (happens("SKERRY_FAKE_HANG_AT")) {
      while (true) ::pause();
    }
    if (happens("SKERRY_FAKE_NON_FINITE_AT"))
      return report(pb::EngineEvent::FAILURE_NON_FINITE, "weights are not finite");
    if (lost_card()) return report(pb::EngineEvent::FAILURE_CARD, "a card has fallen off the bus");
    if (happens("SKERRY_FAKE_OUT_OF_MEMORY_AT")) {
      return report(pb::EngineEvent::FAILURE_OUT_OF_MEMORY, "out of memory");
    }
    return std::nullopt;
  }

  static bool lost_card() {
    const char* const path = std::getenv("SKERRY_FAKE_LOST_CARD");
    const char* const cards = std::getenv("CUDA_VISIBLE_DEVICES");
    std::string lost;
    return path != nullptr && cards != nullptr && std::getline(std::ifstream(path), lost) &&
           std::string_view(cards).find(lost) != std::string_view::npos;
  }

  bool wait_for_stop() {
    progress_at_ = {};
    if (!progress()) return false;
    while (!stop_) {
      if (!read(Duration(-1))) return false;
    }
    return true;
  }

  bool progress() {
    if (now() - progress_at_ < kProgressEvery) return true;
    progress_at_ = now();
    pb::EngineEvent event;
    event.mutable_progress()->set_step(chain_.step);
    event.mutable_progress()->set_loss(chain_.loss());
    event.mutable_progress()->set_samples_per_second(1000);
    return say(event);
  }

  bool snapshot() {
    const Result<std::string> bytes = chain_.encode(weights_);
    const bool first = !memory_;
    if (first) memory_ = UniqueFd(::memfd_create("fake-snapshot", MFD_CLOEXEC));
    if (!bytes || ::ftruncate(memory_.get(), static_cast<off_t>(bytes->size())) != 0 ||
        !storage::write_at(memory_.get(), 0, *bytes, "snapshot")) {
      return false;
    }
    pb::EngineEvent event;
    auto& snapshot = *event.mutable_snapshot();
    snapshot.set_from_step(snapshot_from_);
    snapshot.set_to_step(chain_.step);
    snapshot.set_bytes(bytes->size());
    snapshot.set_loss(chain_.loss());
    snapshot.set_gradient_norm(1);
    snapshot.set_train_seconds(std::chrono::duration<double>(now() - snapshot_began_).count());
    snapshot.set_samples((chain_.step - snapshot_from_) * start_->train().batch_size());
    snapshot_from_ = chain_.step;
    snapshot_began_ = now();
    snapshot_waits_ = true;
    return say(event, first ? memory_.get() : -1);
  }

  int finish() {
    pb::EngineEvent event;
    event.mutable_finished()->set_step(chain_.step);
    event.mutable_finished()->set_complete(at_target());
    say(event);
    return 0;
  }

  int report(pb::EngineEvent::Failure failure, const std::string& reason) {
    std::fprintf(stderr, "%s\n", reason.c_str());
    pb::EngineEvent event;
    event.mutable_failed()->set_failure(failure);
    event.mutable_failed()->set_reason(reason);
    event.mutable_failed()->set_step(chain_.step);
    say(event);
    return 1;
  }

  bool say(const pb::EngineEvent& event, int descriptor = -1) {
    return channel_.send(event, descriptor).has_value() &&
           channel_.flush_all(Duration(std::chrono::seconds(600))).has_value();
  }

  // False: the daemon is gone.
  bool read(Duration wait) {
    const Result<bool> readable = channel_.wait_readable(wait);
    if (!readable) return false;
    if (!*readable) return true;
    auto frames = channel_.receive();
    if (!frames) return false;
    for (auto& frame : *frames) {
      const Result<pb::EngineRequest> request = protocol::parse_engine_request(frame.bytes);
      if (!request) {
        std::fprintf(stderr, "the daemon sent what is not valid: %s\n",
                     request.error().message.c_str());
        return false;
      }
      take(*request, std::move(frame.descriptor));
    }
    return true;
  }

  void take(const pb::EngineRequest& request, UniqueFd descriptor) {
    if (request.has_start()) {
      start_ = request.start();
      plan_ = start_->plan();
      resume_ = std::move(descriptor);
    }
    if (request.has_plan()) plan_ = request.plan();
    if (request.has_snapshot_done()) snapshot_waits_ = false;
    if (request.has_stop()) stop_ = request.stop();
  }

  SystemClock clock_;
  protocol::Channel channel_;
  std::optional<pb::EngineRequest::Start> start_;
  std::optional<pb::EngineRequest::Stop> stop_;
  pb::EngineRequest::RoundPlan plan_;
  UniqueFd resume_;
  UniqueFd memory_;
  std::size_t weights_ = setting("SKERRY_FAKE_WEIGHTS", 256);
  Chain chain_;
  Step round_from_ = 0;
  Step snapshot_from_ = 0;
  bool snapshot_waits_ = false;
  Duration round_began_{};
  Duration snapshot_began_{};
  Duration progress_at_{};
};

// As `skerry-engine check`: whether the device that is shown can train.
int check() {
  const char* card = std::getenv("CUDA_VISIBLE_DEVICES");
  const char* broken = std::getenv("SKERRY_FAKE_CANNOT_TRAIN");
  const bool fails =
      card != nullptr && broken != nullptr && std::string_view(card).starts_with(broken);
  std::puts(fails ? "CUDA error: no kernel image is available for execution on the device"
                  : "fake");
  return fails ? 1 : 0;
}

}  // namespace
}  // namespace skerry::fake

int main(int count, char** words) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);  // a test holds it so
  std::signal(SIGPIPE, SIG_IGN);
  const std::string usage =
      "skerry-fake-engine train --channel FD\n       skerry-fake-engine check --device INDEX\n";
  if (count > 1 && std::string_view(words[1]) == "check") return skerry::fake::check();
  if (count > 1 && std::string_view(words[1]) == "--version") {
    const char* const version = std::getenv("SKERRY_FAKE_VERSION");
    std::puts(version == nullptr ? "skerry-fake-engine" : version);
    return 0;
  }
  if (count != 4 || std::string(words[1]) != "train" || std::string(words[2]) != "--channel") {
    std::fputs(usage.c_str(), stderr);
    return 2;
  }
  return skerry::fake::Engine(std::atoi(words[3])).run();
}
