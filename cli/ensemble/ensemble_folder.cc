// SPDX-License-Identifier: Apache-2.0
#include "cli/ensemble/ensemble_folder.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "base/progress.h"
#include "base/text.h"
#include "cli/ensemble/diffusers_folder.h"
#include "cli/ensemble/export_expert.h"
#include "cli/ensemble/model_card.h"
#include "cli/ensemble/sha256.h"
#include "cli/shell/output.h"
#include "storage/files.h"
#include "storage/folder_lock.h"

namespace skerry::cli {
namespace {

namespace fs = std::filesystem;
constexpr std::string_view kAveraged = "ema/";
constexpr std::string_view kRaw = "raw/";
constexpr std::string_view kScratch = "/.fetched";
constexpr std::string_view kScratchWithState = "/.fetched-with-training-state";

const std::string kLearnedRouter = "/learned.safetensors";

Result<void> make_folder(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) return system_error("make the folder", path, error.value());
  return {};
}

// Two folders: what an earlier fetch left without the training state is no
// whole object for a fetch with it.
std::string scratch_folder(const std::string& partial, bool with_state) {
  return text(partial, with_state ? kScratchWithState : kScratch);
}

std::string scratch_path(const std::string& scratch, const pb::ObjectRef& object) {
  return text(scratch, "/", to_hex(object.manifest()));
}

std::string router_path(const std::string& partial, const pb::DatasetFile& file) {
  const std::string folder = router_folder(partial);
  return file.role() == "router" ? folder + "/router.safetensors"
                                 : text(folder, "/partition-", file.partition(), ".safetensors");
}

// Of a checkpoint one byte in `share` is of the averages.
Result<WantedObject> wanted(const pb::ObjectRef& object, bool whole, std::uint64_t share) {
  ASSIGN_OR_RETURN(const Hash name, Hash::from_raw(object.manifest()));
  if (whole) return WantedObject{name, object.manifest_bytes(), {}, object.bytes()};
  return WantedObject{
      name, object.manifest_bytes(), {std::string(storage::kPartEma)}, object.bytes() / share};
}

Result<std::vector<WantedObject>> wanted_objects(const pb::EnsembleReply& ensemble,
                                                 bool with_state) {
  // Weights, averages and two moments; in the lean form all but the weights
  // have half the bytes.
  const std::uint64_t share = ensemble.run().spec().train().state() == pb::STATE_FORM_LEAN ? 5 : 4;
  std::vector<WantedObject> objects;
  if (ensemble.has_learned_router()) {
    ASSIGN_OR_RETURN(WantedObject object,
                     wanted(ensemble.learned_router().checkpoint(), with_state, share));
    objects.push_back(std::move(object));
  }
  for (const pb::EnsembleExpert& expert : ensemble.experts()) {
    ASSIGN_OR_RETURN(WantedObject object, wanted(expert.checkpoint(), with_state, share));
    objects.push_back(std::move(object));
  }
  for (const pb::DatasetFile& file : ensemble.router()) {
    ASSIGN_OR_RETURN(WantedObject object, wanted(file.object(), true, share));
    objects.push_back(std::move(object));
  }
  return objects;
}

// An earlier fetch of an unfinished run may have left checkpoints that are not
// the heads any more.
void drop_stale_scratch(const std::string& scratch, const std::vector<WantedObject>& objects) {
  std::set<std::string> kept;
  for (const WantedObject& object : objects)
    kept.insert({object.object.hex(), object.object.hex() + ".partial"});
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(scratch, ignored)) {
    if (!kept.contains(entry.path().filename().string())) fs::remove_all(entry.path(), ignored);
  }
}

// bf16 is the upper half of fp32. A block at a time: a tensor is never in
// memory as a whole.
Result<void> append_widened(std::string_view halves, const WeightSource::Append& append) {
  constexpr std::size_t kBlock = 1 << 12;
  std::string wide;
  for (; !halves.empty(); halves.remove_prefix(std::min(kBlock, halves.size()))) {
    const std::string_view block = halves.substr(0, kBlock);
    wide.assign(2 * block.size(), '\0');
    for (std::size_t i = 0; i + 1 < block.size(); i += 2) {
      wide[2 * i + 2] = block[i];
      wide[2 * i + 3] = block[i + 1];
    }
    TRY(append(wide));
  }
  return {};
}

// fp32, as diffusers expects what bears no variant's name: also from the
// averages of a lean checkpoint, which are bf16.
Result<void> export_from(const storage::Safetensors& checkpoint, std::string_view prefix,
                         const std::string& folder, const pb::ModelSpec& model,
                         const ExportForm& form) {
  WeightSource weights;
  for (const storage::TensorInfo& tensor : checkpoint.header().tensors) {
    if (!tensor.name.starts_with(prefix)) continue;
    const storage::DType dtype =
        tensor.dtype == storage::DType::kBF16 ? storage::DType::kF32 : tensor.dtype;
    weights.tensors.push_back({tensor.name.substr(prefix.size()), dtype, tensor.shape, {}});
  }
  weights.read = [&](const std::string& name, const WeightSource::Append& append) -> Result<void> {
    ASSIGN_OR_RETURN(const storage::TensorView tensor, checkpoint.tensor(text(prefix, name)));
    return tensor.dtype == storage::DType::kBF16 ? append_widened(tensor.data, append)
                                                 : append(tensor.data);
  };
  return export_expert(folder, model, weights, form);
}

// Raw weights and moments as the checkpoint names them: what training goes on
// from.
Result<void> write_training_state(const storage::Safetensors& checkpoint,
                                  const std::string& folder) {
  std::vector<storage::TensorView> tensors;
  for (const storage::TensorInfo& tensor : checkpoint.header().tensors) {
    if (!tensor.name.starts_with(kAveraged)) tensors.push_back(checkpoint.view(tensor));
  }
  return storage::write_safetensors(folder + "/training_state.safetensors", tensors,
                                    checkpoint.header().metadata);
}

// As the checkpoint names them: its metadata says what shape the router has.
Result<void> write_learned_router(const std::string& fetched, const std::string& path) {
  ASSIGN_OR_RETURN(const storage::Safetensors checkpoint, storage::Safetensors::open(fetched));
  std::vector<storage::TensorView> tensors;
  for (const storage::TensorInfo& tensor : checkpoint.header().tensors) {
    if (tensor.name.starts_with(kAveraged)) tensors.push_back(checkpoint.view(tensor));
  }
  return storage::write_safetensors(path, tensors, checkpoint.header().metadata);
}

Result<void> assemble_expert(const std::string& fetched, const std::string& folder,
                             const pb::ModelSpec& model, const Extras& extras) {
  ASSIGN_OR_RETURN(const storage::Safetensors checkpoint, storage::Safetensors::open(fetched));
  TRY(make_folder(folder));
  TRY(export_from(checkpoint, kAveraged, folder, model, {}));
  if (extras.raw_weights) TRY(export_from(checkpoint, kRaw, folder, model, {.variant = "raw"}));
  if (extras.training_state) TRY(write_training_state(checkpoint, folder));
  return {};
}

Result<void> assemble(const pb::EnsembleReply& ensemble, const std::string& partial,
                      const std::string& scratch, const Extras& extras) {
  std::error_code error;
  fs::remove_all(partial + "/transformer",
                 error);  // half made by a fetch that was interrupted, with other extras
  for (const pb::EnsembleExpert& expert : ensemble.experts()) {
    TRY(assemble_expert(scratch_path(scratch, expert.checkpoint()),
                        expert_folder(partial, expert.index()), ensemble.run().model(), extras));
  }
  TRY(make_folder(router_folder(partial)));
  for (const pb::DatasetFile& file : ensemble.router()) {
    fs::copy_file(scratch_path(scratch, file.object()), router_path(partial, file),
                  fs::copy_options::overwrite_existing, error);
    if (error) return system_error("write", router_path(partial, file), error.value());
  }
  if (ensemble.has_learned_router()) {
    TRY(write_learned_router(scratch_path(scratch, ensemble.learned_router().checkpoint()),
                             router_folder(partial) + kLearnedRouter));
  }
  TRY(write_diffusers_files(partial, ensemble));
  TRY(write_text_file(partial + "/README.md", model_card(ensemble, partial)));
  return write_text_file(partial + "/ensemble.json", ensemble_index(ensemble));
}

Error already_there(const std::string& folder) {
  return fail(ErrorCode::kConflict,
              text(folder, " exists already: choose another with -o, or remove it"));
}

Result<void> publish(const std::string& partial, const std::string& folder) {
  std::error_code error;
  fs::remove_all(scratch_folder(partial, false), error);
  fs::remove_all(scratch_folder(partial, true), error);
  TRY(write_sha256sums(partial));
  if (fs::exists(folder, error)) {
    return fail(ErrorCode::kConflict,
                text(folder, " has appeared meanwhile; what was fetched is in ", partial));
  }
  fs::rename(partial, folder, error);
  if (error) return system_error("rename", partial, error.value());
  const std::string parent = fs::absolute(folder, error).parent_path().string();
  return storage::sync_folder(parent);
}

}  // namespace

Result<void> check_ensemble(const pb::EnsembleReply& ensemble, const std::string& folder) {
  std::error_code error;
  if (fs::exists(folder, error)) return already_there(folder);
  const std::uint32_t count = ensemble.dataset().partitions();
  for (const pb::EnsembleExpert& expert : ensemble.experts()) {
    if (expert.checkpoint().manifest().empty()) {
      return fail(ErrorCode::kConflict,
                  text("expert ", expert.index(),
                       " has no checkpoint yet: wait for its first commit (`skerry run show ",
                       ensemble.run().name(), "`)"));
    }
  }
  if (ensemble.has_learned_router() && ensemble.learned_router().checkpoint().manifest().empty()) {
    return fail(ErrorCode::kConflict,
                text("the router has no checkpoint yet: wait for its first commit (`skerry run "
                     "show ",
                     ensemble.run().name(), "`)"));
  }
  // One for each expert, and one that they share. The experts need not be all:
  // some may have been removed from the run.
  constexpr std::int32_t kShared = -1;
  std::set<std::int32_t> expected{kShared}, statistics;
  for (const pb::EnsembleExpert& expert : ensemble.experts())
    expected.insert(static_cast<std::int32_t>(expert.index()));
  for (const pb::DatasetFile& file : ensemble.router())
    statistics.insert(file.role() == "router" ? kShared : file.partition());
  const bool whole = ensemble.experts_size() > 0 && statistics == expected &&
                     static_cast<std::size_t>(ensemble.experts_size()) + 1 == expected.size() &&
                     std::ranges::all_of(ensemble.experts(), [&](const auto& expert) {
                       return expert.index() < count;
                     });
  if (!whole) {
    return fail(ErrorCode::kCorrupt,
                text("the coordinator's answer is not a whole ensemble: ", ensemble.experts_size(),
                     " experts and ", statistics.size(), " files of statistics for ", count,
                     " partitions"));
  }
  return {};
}

bool is_laggard(const pb::EnsembleExpert& expert) { return expert.step() < expert.steps_target(); }

std::vector<std::uint32_t> laggards(const pb::EnsembleReply& ensemble) {
  std::vector<std::uint32_t> behind;
  for (const pb::EnsembleExpert& expert : ensemble.experts()) {
    if (is_laggard(expert)) behind.push_back(expert.index());
  }
  return behind;
}

std::string ensemble_index(const pb::EnsembleReply& ensemble) {
  const pb::ModelSpec& model = ensemble.run().model();
  std::map<std::uint32_t, Json> ordered;
  for (const pb::EnsembleExpert& expert : ensemble.experts()) {
    ordered[expert.index()] = {{"index", expert.index()},
                               {"step", expert.step()},
                               {"steps_target", expert.steps_target()},
                               {"partition_samples", expert.partition_samples()},
                               {"laggard", is_laggard(expert)},
                               {"manifest", to_hex(expert.checkpoint().manifest())}};
  }
  Json experts = Json::array();
  for (auto& [index, expert] : ordered) experts.push_back(std::move(expert));
  Json classes = Json::array();
  for (const std::string& name : ensemble.dataset().classes()) classes.push_back(name);
  Json shape = {{"width", model.width()},
                {"depth", model.depth()},
                {"heads", model.heads()},
                {"patch_size", model.patch_size()}};
  if (model.caption_dim() > 0) shape["caption_dim"] = model.caption_dim();
  if (model.interpolation_scale() != 0) shape["interpolation_scale"] = model.interpolation_scale();
  const Json index = {{"format", 1},
                      {"run", ensemble.run().name()},
                      {"run_id", ensemble.run().id()},
                      {"dataset", ensemble.dataset().name()},
                      {"classes", std::move(classes)},
                      {"image_size", model.image_size()},
                      {"channels", model.channels()},
                      {"experts", std::move(experts)},
                      {"model", std::move(shape)},
                      {"router", ensemble.has_learned_router() ? "learned" : "analytic"}};
  return index.dump(2) + "\n";
}

Result<void> fetch_ensemble(const pb::EnsembleReply& ensemble, const std::string& folder,
                            const Extras& extras, ObjectSource& source, Terminal& terminal,
                            const std::string& kept) {
  const std::string partial = folder + ".partial";
  ASSIGN_OR_RETURN(
      const UniqueFd held,
      storage::lock_folder(partial, text("another fetch is writing to ", partial,
                                         ": wait for it, or choose another folder with -o")));
  std::error_code error;
  if (fs::exists(folder, error)) return already_there(folder);  // made while we came here
  const std::string scratch = kept.empty() ? scratch_folder(partial, extras.any()) : kept;
  TRY(make_folder(scratch));
  ASSIGN_OR_RETURN(const std::vector<WantedObject> objects, wanted_objects(ensemble, extras.any()));
  drop_stale_scratch(scratch, objects);
  {
    exchange::FolderChunkStore chunk_store(scratch);
    Progress progress(terminal, "fetching", Progress::Unit::kBytes);
    TRY(source.fetch(objects, chunk_store,
                     [&](std::uint64_t done, std::uint64_t total) { progress.show(done, total); }));
  }
  TRY(assemble(ensemble, partial, scratch, extras));
  return publish(partial, folder);
}

}  // namespace skerry::cli
