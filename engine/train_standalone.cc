// SPDX-License-Identifier: Apache-2.0
#include "engine/train_standalone.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <utility>

#include "base/text.h"
#include "diffusion/runtime/trace.h"
#include "diffusion/train/train.h"
#include "engine/dataset_folder.h"
#include "storage/tensorboard_file.h"

namespace skerry::engine {
namespace {

using diffusion::StepMetrics;
using diffusion::Trainer;
using std::chrono::duration;
using std::chrono::steady_clock;

class ProgressLine {
 public:
  ProgressLine(std::uint64_t begin, std::uint64_t target, std::uint32_t batch)
      : begin_(begin), target_(target), batch_(batch) {}

  void step(const StepMetrics& metrics) {
    losses_ += metrics.loss;
    ++count_;
    if (::isatty(STDERR_FILENO) != 1 ||
        steady_clock::now() - shown_ < std::chrono::milliseconds(500))
      return;
    std::fprintf(stderr, "\r\033[K%s", line(metrics.step).c_str());
    shown_ = steady_clock::now();
    losses_ = 0;
    count_ = 0;
  }
  void finish(std::uint64_t step) const {
    std::fprintf(stderr, "%s%s\n", ::isatty(STDERR_FILENO) == 1 ? "\r\033[K" : "",
                 line(step).c_str());
  }

 private:
  std::string line(std::uint64_t step) const {
    const double seconds = duration<double>(steady_clock::now() - start_).count();
    const double samples = static_cast<double>((step - begin_) * batch_);
    return text("step ", step, " of ", target_, " · loss ",
                losses_ / static_cast<double>(std::max<std::uint64_t>(count_, 1)), " · ",
                static_cast<std::uint64_t>(samples / std::max(seconds, 1e-9)), " images/s");
  }
  std::uint64_t begin_, target_;
  std::uint32_t batch_;
  double losses_ = 0;
  std::uint64_t count_ = 0;
  steady_clock::time_point start_ = steady_clock::now(), shown_ = start_;
};

// Means over a few steps, if the options ask for them.
class Curves {
 public:
  explicit Curves(std::optional<storage::TensorBoardFile> file) : file_(std::move(file)) {}

  Result<void> step(const StepMetrics& metrics, bool last) {
    if (!file_) return {};
    ++count_;
    loss_ += metrics.loss;
    norm_ += metrics.gradient_norm;
    if (count_ < kSteps && !last) return {};
    const double count = std::exchange(count_, 0);
    return file_->add(metrics.step, unix_seconds(),
                      {{"loss", std::exchange(loss_, 0) / count},
                       {"gradient_norm", std::exchange(norm_, 0) / count},
                       {"learning_rate", metrics.learning_rate}});
  }

  static double unix_seconds() {
    return duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  }

 private:
  static constexpr int kSteps = 10;
  std::optional<storage::TensorBoardFile> file_;
  int count_ = 0;
  double loss_ = 0, norm_ = 0;
};

Result<Curves> open_curves(const std::string& folder) {
  if (folder.empty()) return Curves(std::nullopt);
  ASSIGN_OR_RETURN(storage::TensorBoardFile file,
                   storage::TensorBoardFile::create(folder, Curves::unix_seconds()));
  return Curves(std::move(file));
}

// A trace of a few steps, if the options ask for it.
class Profile {
 public:
  // kInvalid: there are too few steps.
  static Result<Profile> of(const StandaloneOptions& options, const Trainer& trainer,
                            std::uint64_t target) {
    Profile profile;
    profile.path_ = options.profile;
    profile.begin_ = trainer.steps_done() + options.profile_after;
    profile.end_ = profile.begin_ + options.profile_steps;
    profile.on_card_ = trainer.device_name() != "cpu";
    if (!options.profile.empty() && profile.end_ > target) {
      return fail(ErrorCode::kInvalid,
                  text("--profile: expected at least ", profile.end_, " steps, found ", target,
                       "; see --profile-after and --profile-steps"));
    }
    return profile;
  }

  // Before and after each step: with those done.
  Result<void> before(std::uint64_t done) {
    if (path_.empty() || done != begin_) return {};
    ASSIGN_OR_RETURN(diffusion::Trace trace, diffusion::Trace::begin(on_card_));
    trace_.emplace(std::move(trace));
    return {};
  }
  Result<void> after(std::uint64_t done) {
    if (!trace_ || done != end_) return {};
    TRY(trace_->write(path_));
    trace_.reset();
    return {};
  }

 private:
  Profile() = default;

  std::string path_;
  std::uint64_t begin_ = 0, end_ = 0;  // steps done when it begins, and when it ends
  bool on_card_ = false;
  std::optional<diffusion::Trace> trace_;
};

Result<Trainer> open_trainer(const StandaloneOptions& options) {
  const auto partition = options.router ? std::nullopt : std::optional(options.train.expert);
  ASSIGN_OR_RETURN(DatasetFolder dataset, open_dataset_folder(options.dataset, partition));
  ModelSpec model = options.model;
  TrainSpec train = options.train;
  model.image_size = dataset.image_size;
  model.channels = dataset.channels;
  model.classes = dataset.classes;
  ASSIGN_OR_RETURN(const bool pixart,
                   reads_captions(options.architecture, dataset.caption_dim > 0));
  if (pixart && !options.router) {
    model.caption_dim = dataset.caption_dim;
    model.caption_tokens = dataset.caption_tokens;
    dataset.shards.insert(dataset.shards.end(), dataset.captions.begin(), dataset.captions.end());
  }
  if (options.router) {  // numbered as the router's job of a run
    model.router_experts = train.expert = dataset.partitions;
    train.shard_partitions = dataset.shard_partitions;
  }
  if (!options.init.empty())
    dataset.shards.push_back(options.init + "/diffusion_pytorch_model.safetensors");
  if (options.resume.empty()) return Trainer::create(model, train, dataset.shards);
  ASSIGN_OR_RETURN(const storage::Safetensors checkpoint,
                   storage::Safetensors::open(options.resume));
  return Trainer::resume(model, train, dataset.shards, checkpoint);
}

}  // namespace

Result<void> train_standalone(const StandaloneOptions& options) {
  ASSIGN_OR_RETURN(Trainer trainer, open_trainer(options));
  const std::uint64_t target =
      std::min(options.stop_after.value_or(options.train.steps), options.train.steps);
  std::fprintf(stderr, "%llu parameters, %llu samples, %s\n",
               static_cast<unsigned long long>(trainer.parameter_count()),
               static_cast<unsigned long long>(trainer.sample_count()),
               trainer.fingerprint().c_str());
  ASSIGN_OR_RETURN(Curves curves, open_curves(options.events));
  ProgressLine progress(trainer.steps_done(), target, options.train.batch_size);
  ASSIGN_OR_RETURN(Profile profile, Profile::of(options, trainer, target));
  const auto show = [&](const std::optional<StepMetrics>& metrics) -> Result<void> {
    if (!metrics) return {};
    progress.step(*metrics);
    return curves.step(*metrics, metrics->step == target);
  };
  while (trainer.steps_done() < target) {
    TRY(profile.before(trainer.steps_done()));
    ASSIGN_OR_RETURN(const std::optional<StepMetrics> before, trainer.advance());
    TRY(profile.after(trainer.steps_done()));
    TRY(show(before));
  }
  ASSIGN_OR_RETURN(const std::optional<StepMetrics> last, trainer.settle());
  TRY(show(last));
  progress.finish(trainer.steps_done());
  ASSIGN_OR_RETURN(const std::optional<std::string> found, trainer.non_finite());
  if (found) {
    return fail(ErrorCode::kInvalid, text("training diverged: ", *found,
                                          " is not finite; try a lower learning rate, "
                                          "a clip, or the next --attempt"));
  }
  return trainer.write_checkpoint(options.output);
}

}  // namespace skerry::engine
