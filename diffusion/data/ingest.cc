// SPDX-License-Identifier: Apache-2.0
#include "diffusion/data/ingest.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>

#include "base/text.h"
#include "diffusion/data/algebra.h"
#include "diffusion/data/caption_centroids.h"
#include "diffusion/data/captions.h"
#include "diffusion/data/dataset_writer.h"
#include "diffusion/data/imported_features.h"
#include "diffusion/data/ingest_text.h"
#include "diffusion/data/linear_baseline.h"
#include "diffusion/formats/read_images.h"
#include "diffusion/formats/split.h"
#include "diffusion/formats/table.h"
#include "diffusion/model/image_encoder.h"
#include "diffusion/router/measure.h"
#include "diffusion/router/statistics.h"
#include "storage/folder_lock.h"

namespace skerry::diffusion {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kFeatures = 64;
constexpr std::size_t kPartitionRank = 32;
constexpr std::size_t kMaxFine = 1024;
constexpr std::size_t kSamplesPerFine = 20;
constexpr std::size_t kFinePerExpert = 16;  // fewer leave the table nothing to move

// The folder while it is being written, by one process at a time; it and all in
// it go unless commit() was reached.
class PartialFolder {
 public:
  static Result<PartialFolder> create(const std::string& output) {
    const fs::path final = final_path(output);
    const std::string partial = final.string() + ".partial";
    std::error_code error;
    ASSIGN_OR_RETURN(UniqueFd lock,
                     storage::lock_folder(partial, text("another ingestion is writing to ", partial,
                                                        ": wait for it, or name another --out")));
    if (fs::exists(final, error) && !fs::is_empty(final, error)) {
      fs::remove(partial, error);  // empty, if this made it
      return fail(ErrorCode::kConflict,
                  text(output, " exists and is not empty: choose another folder or remove it"));
    }
    for (const auto& entry : fs::directory_iterator(partial, error))  // of a try that was killed
      fs::remove_all(entry.path(), error);
    if (error) return fail(ErrorCode::kIo, text(partial, ": ", error.message()));
    return PartialFolder(final.string(), std::move(lock));
  }
  PartialFolder(PartialFolder&& other) noexcept
      : final_(std::move(other.final_)),
        partial_(std::exchange(other.partial_, "")),
        lock_(std::move(other.lock_)) {}
  PartialFolder& operator=(PartialFolder&&) = delete;
  ~PartialFolder() {
    std::error_code ignored;
    if (!partial_.empty()) fs::remove_all(partial_, ignored);
  }
  const std::string& path() const { return partial_; }
  // Where encoded images and captions are kept, until commit().
  static std::string encoded(const std::string& output) {
    return final_path(output).string() + ".encoded";
  }
  Result<void> commit() {
    std::error_code error;
    fs::rename(partial_, final_, error);
    if (error) return fail(ErrorCode::kIo, text(final_, ": ", error.message()));
    partial_.clear();
    fs::remove(encoded(final_), error);
    return {};
  }

 private:
  static fs::path final_path(const std::string& output) {
    const fs::path path = fs::path(output).lexically_normal();
    return path.has_filename() ? path : path.parent_path();
  }
  PartialFolder(std::string final_path, UniqueFd lock)
      : final_(std::move(final_path)), partial_(final_ + ".partial"), lock_(std::move(lock)) {}
  std::string final_;
  std::string partial_;
  UniqueFd lock_;
};

struct Partitioned {
  Split split;
  RouterFolder statistics;
  std::vector<std::vector<std::uint32_t>> rows;  // [K] training images of each partition, ascending
  std::vector<std::int32_t> fit, test;           // partitions of the held-back images
  bool within_caps = false;
  double ratio = 1;
};

Result<void> check_enough(const ImageSet& images, std::uint32_t partitions) {
  const std::uint64_t n = images.pixels.count;
  if (n < 3)
    return fail(ErrorCode::kInvalid, text(n, " images are too few: at least 3 are needed"));
  if (n > UINT32_MAX)
    return fail(ErrorCode::kInvalid, text(n, " images are too many for one dataset"));
  const std::uint64_t training = split_samples(static_cast<std::uint32_t>(n), 0).train.size();
  if (training >= partitions) return {};
  return fail(ErrorCode::kInvalid,
              text("--partitions ", partitions, " is more than the ", training,
                   " images there are to train on (", n, " without the held-back ones)"));
}

std::size_t fine_count(std::size_t samples, std::size_t partitions) {
  const std::size_t wanted = std::max(samples / kSamplesPerFine, kFinePerExpert * partitions);
  return std::min(samples, std::max(partitions, std::min(wanted, kMaxFine)));
}

// What images are grouped by.
class Features {
 public:
  Features(const ImageSet& images, const RouterStatistics& shared, const FeatureMatrix* imported)
      : images_(images), shared_(shared), imported_(imported) {}

  std::size_t count() const {
    return imported_ == nullptr ? shared_.feature_count : imported_->columns;
  }
  // Unit-length features [rows, count] of images.
  Result<std::vector<float>> of(const std::vector<std::uint32_t>& rows) const {
    if (imported_ == nullptr)
      return image_features(images_.pixels, rows, shared_.whole, shared_.feature_count);
    std::vector<std::uint32_t> places;
    for (const std::uint32_t row : rows) places.push_back(images_.places[row]);
    return unit_rows(*imported_, places);
  }

 private:
  const ImageSet& images_;
  const RouterStatistics& shared_;
  const FeatureMatrix* imported_;
};

struct Rule {
  std::vector<float> centroids;  // fine ones
  std::vector<std::int32_t> table;
};

Result<std::vector<std::int32_t>> partitions_of(const Features& features,
                                                const std::vector<std::uint32_t>& rows,
                                                const Rule& rule) {
  ASSIGN_OR_RETURN(const std::vector<float> points, features.of(rows));
  std::vector<std::int32_t> out;
  for (const std::uint32_t j : nearest_centroids(points, rule.centroids, features.count())) {
    out.push_back(rule.table[j]);
  }
  return out;
}

// Fine centroids of each partition's images by their pixels, for a router that
// cannot compute imported features.
void describe_by_pixels(const ImageSet& images, std::uint64_t seed,
                        const std::vector<std::vector<std::uint32_t>>& rows,
                        RouterStatistics& shared) {
  std::size_t samples = 0;
  for (const auto& of_one : rows) samples += of_one.size();
  const std::size_t fine = fine_count(samples, rows.size());
  for (std::size_t k = 0; k < rows.size(); ++k) {
    const std::vector<float> points =
        image_features(images.pixels, rows[k], shared.whole, shared.feature_count);
    const std::size_t share = std::max<std::size_t>(1, fine * rows[k].size() / samples);
    const FineClusters found =
        fine_clusters(points, shared.feature_count, share, seed, [](const Progress&) {});
    shared.fine_centroids.insert(shared.fine_centroids.end(), found.centroids.begin(),
                                 found.centroids.end());
    shared.table.insert(shared.table.end(), found.counts.size(), static_cast<std::int32_t>(k));
  }
}

Result<Partitioned> partition(const ImageSet& images, const IngestOptions& options,
                              const FeatureMatrix* imported, const ProgressFn& progress) {
  Partitioned out;
  out.split = split_samples(static_cast<std::uint32_t>(images.pixels.count), options.seed);
  RouterStatistics& shared = out.statistics.shared;
  shared.latents = images.latents;
  progress({"components", 0, 1});
  shared.whole = fit_gaussian(images.pixels, out.split.train, kFeatures, options.seed);
  shared.feature_count = shared.whole.rank();
  const Features features(images, shared, imported);
  ASSIGN_OR_RETURN(const std::vector<float> points, features.of(out.split.train));
  progress({"components", 1, 1});

  FineClusters fine =
      fine_clusters(points, features.count(),
                    fine_count(out.split.train.size(), options.partitions), options.seed, progress);
  if (fine.counts.size() < options.partitions) {
    return fail(ErrorCode::kInvalid,
                text("--partitions ", options.partitions, " is more than the ", fine.counts.size(),
                     " groups of images that can be told apart"));
  }
  PartitionTable table =
      build_table(fine.centroids, features.count(), fine.counts, options.partitions, options.seed);
  Rule rule{std::move(fine.centroids), std::move(table.expert)};
  out.within_caps = table.within_caps;
  out.ratio = table.ratio();
  out.rows.resize(options.partitions);
  for (std::size_t i = 0; i < out.split.train.size(); ++i) {
    out.rows[static_cast<std::size_t>(rule.table[fine.nearest[i]])].push_back(out.split.train[i]);
  }
  ASSIGN_OR_RETURN(out.fit, partitions_of(features, out.split.fit, rule));
  ASSIGN_OR_RETURN(out.test, partitions_of(features, out.split.test, rule));
  if (imported == nullptr) {
    shared.fine_centroids = std::move(rule.centroids);
    shared.table = std::move(rule.table);
  } else {
    describe_by_pixels(images, options.seed, out.rows, shared);
  }
  return out;
}

std::vector<std::int64_t> count_labels(const ImageSet& images,
                                       const std::vector<std::uint32_t>& rows) {
  std::vector<std::int64_t> counts(images.classes.size() + 1);
  for (const std::uint32_t row : rows) {
    const std::int32_t label = images.labels[row];
    ++counts[label < 0 ? images.classes.size() : static_cast<std::size_t>(label)];
  }
  return counts;
}

void add_statistics(const ImageSet& images, const IngestOptions& options, Partitioned& data,
                    const ProgressFn& progress) {
  for (std::size_t k = 0; k < data.rows.size(); ++k) {
    progress({"statistics", k, data.rows.size()});
    data.statistics.partitions.push_back(
        {fit_gaussian(images.pixels, data.rows[k], kPartitionRank, options.seed),
         count_labels(images, data.rows[k]), static_cast<std::int64_t>(data.rows[k].size())});
  }
  progress({"statistics", data.rows.size(), data.rows.size()});
  fit_linear_baseline(images.pixels, data.split.train, data.statistics.shared);
  progress({"router", 0, 1});
  fit_curves(data.statistics, {images.pixels, data.split.fit, data.fit, {}}, options.seed);
  progress({"router", 1, 1});
}

Result<void> write_files(const std::string& folder, const ImageSet& images,
                         const Captions* captions, const Partitioned& data,
                         std::vector<DatasetFile>& files, const ProgressFn& progress) {
  for (std::size_t k = 0; k < data.rows.size(); ++k) {
    progress({"write", k, data.rows.size()});
    TRY(write_shards(folder, images, captions, static_cast<std::int32_t>(k), data.rows[k], files));
  }
  TRY(write_router_statistics(folder + "/router.safetensors", data.statistics.shared));
  ASSIGN_OR_RETURN(DatasetFile router, file_entry(folder, "router.safetensors", "router", -1, 0));
  files.push_back(std::move(router));
  for (std::size_t k = 0; k < data.rows.size(); ++k) {
    const std::string name = text("partition-", k, ".safetensors");
    TRY(write_partition_statistics(folder + "/" + name, data.statistics.partitions[k]));
    ASSIGN_OR_RETURN(
        DatasetFile entry,
        file_entry(folder, name, "partition", static_cast<std::int32_t>(k), data.rows[k].size()));
    files.push_back(std::move(entry));
  }
  TRY(write_held_back(folder, "fit", images, captions, data.split.fit, data.fit, files));
  TRY(write_held_back(folder, "test", images, captions, data.split.test, data.test, files));
  progress({"write", data.rows.size(), data.rows.size()});
  return {};
}

// Says in the summary what the dataset is, beside its captions.
void describe(const ImageSet& images, const Partitioned& data, IngestSummary& summary) {
  DatasetIndex& index = summary.index;
  index.partitions = static_cast<std::uint32_t>(data.rows.size());
  index.samples = data.split.train.size();
  index.channels = images.pixels.channels;
  index.image_size = images.pixels.size;
  index.latents = images.latents;
  index.classes = images.classes;
  index.skipped = images.skipped;
  index.skipped_examples = images.skipped_examples;
  for (const auto& rows : data.rows) index.partition_samples.push_back(rows.size());
  summary.fit = data.fit.size();
  summary.test = data.test.size();
  summary.fine_centroids = static_cast<std::uint32_t>(data.statistics.shared.table.size());
  summary.ratio = data.ratio;
  summary.within_caps = data.within_caps;
}

bool encodes(const IngestOptions& options) {
  return !options.vae.empty() || !options.text_encoder.empty();
}

Result<void> check_options(const IngestOptions& options) {
  if (options.partitions < 1 || options.partitions > kMaxPartitions) {
    return fail(ErrorCode::kInvalid,
                text("--partitions must be 1 to ", kMaxPartitions, ", not ", options.partitions));
  }
  if (!options.vae.empty() && options.latents.scaled) {
    return fail(ErrorCode::kInvalid,
                "--latents-scaled is for latents that are there: leave it out beside --vae");
  }
  if (!options.text_encoder.empty()) {
    if (!options.caption_embeddings.empty()) {
      return fail(ErrorCode::kInvalid,
                  "--text-encoder encodes the captions that --caption-embeddings would replace: "
                  "leave one of them out");
    }
    if (options.captions == CaptionChoice::kOff)
      return fail(ErrorCode::kInvalid,
                  "--captions off leaves nothing for --text-encoder: leave "
                  "one of them out");
    if (options.longest < kMinLongest || options.longest > kMaxLongest) {
      return fail(ErrorCode::kInvalid, text("--longest must be ", kMinLongest, " to ", kMaxLongest,
                                            " tokens, not ", options.longest));
    }
  }
  if (options.image_size != 0 &&
      (options.image_size < kMinImageSize || options.image_size > kMaxImageSize)) {
    return fail(ErrorCode::kInvalid, text("--image-size must be ", kMinImageSize, " to ",
                                          kMaxImageSize, ", not ", options.image_size));
  }
  return {};
}

Result<std::unique_ptr<ResumingEncoder>> open_encoder(const IngestOptions& options,
                                                      KeptBatches& kept) {
  ASSIGN_OR_RETURN(
      std::unique_ptr<ImageEncoder> encoder,
      open_image_encoder(options.vae, options.device, encoder_threads(), options.latents.scaling));
  ASSIGN_OR_RETURN(const Hash weights, autoencoder_hash(options.vae));
  return std::make_unique<ResumingEncoder>(std::move(encoder), encoder_key(weights, options), kept);
}

// Says of an ingestion that failed what remains.
Error with_kept(const IngestOptions& options, Error error) {
  const std::string kept = PartialFolder::encoded(options.output);
  std::error_code ignored;
  if (fs::file_size(kept, ignored) == 0) fs::remove(kept, ignored);
  if (fs::exists(kept, ignored)) {
    error.message +=
        text(" (what was encoded is kept in ", kept, ": the same command goes on from there)");
  }
  return error;
}

Result<IngestSummary> ingest_all(const IngestOptions& options, const ProgressFn& progress) {
  TRY(check_options(options));
  ASSIGN_OR_RETURN(const std::unique_ptr<Source> source,
                   open_source(options.input, options.captions));
  std::optional<ImportedFeatures> imported;
  if (!options.features.empty()) {
    ASSIGN_OR_RETURN(imported, ImportedFeatures::open(options.features));
  }
  ASSIGN_OR_RETURN(IngestText captioning, IngestText::open(options));
  ASSIGN_OR_RETURN(PartialFolder folder, PartialFolder::create(options.output));
  std::optional<KeptBatches> kept;
  if (encodes(options)) {
    ASSIGN_OR_RETURN(kept, KeptBatches::open(PartialFolder::encoded(options.output)));
  }
  std::unique_ptr<ResumingEncoder> encoder;
  if (!options.vae.empty()) {
    ASSIGN_OR_RETURN(encoder, open_encoder(options, *kept));
  }
  auto images = read_images(*source, folder.path(), options.image_size, options.latents,
                            options.captions, encoder.get(), progress);
  if (!images.has_value()) {
    return fail(images.error().code, text(options.input, ": ", images.error().message));
  }
  TRY(check_enough(*images, options.partitions));
  const FeatureMatrix* const matrix = imported ? &imported->matrix() : nullptr;
  if (matrix != nullptr) TRY(check_rows(matrix->rows, *images, options.features));
  IngestSummary summary;
  if (encoder) summary.resumed = encoder->resumed();
  encoder.reset();  // its memory is the text encoder's
  ASSIGN_OR_RETURN(
      const std::optional<Captions> captions,
      captioning.read(*images, options, folder.path(), kept ? &*kept : nullptr, progress, summary));
  const Captions* const stored = captions ? &*captions : nullptr;
  set_algebra_threads(options.threads);
  ASSIGN_OR_RETURN(Partitioned data, partition(*images, options, matrix, progress));
  if (captions) {
    progress({"prompts", 0, 1});
    data.statistics.shared.captions =
        caption_statistics(*captions, data.rows, data.split.fit, data.fit);
    progress({"prompts", 1, 1});
  }
  add_statistics(*images, options, data, progress);
  describe(*images, data, summary);
  TRY(write_files(folder.path(), *images, stored, data, summary.index.files, progress));
  TRY(write_dataset_index(folder.path(), summary.index));
  TRY(folder.commit());
  return summary;
}

}  // namespace

Result<IngestSummary> ingest(const IngestOptions& options, const ProgressFn& progress) {
  Result<IngestSummary> made = ingest_all(options, progress);
  if (made || !encodes(options)) return made;
  return with_kept(options, made.error());
}

}  // namespace skerry::diffusion
