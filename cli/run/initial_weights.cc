// SPDX-License-Identifier: Apache-2.0
#include "cli/run/initial_weights.h"

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <ostream>
#include <set>

#include "base/text.h"
#include "cli/dataset/upload.h"
#include "cli/ensemble/export_expert.h"
#include "cli/shell/exit_code.h"
#include "storage/layout.h"

namespace skerry::cli {
namespace {

namespace fs = std::filesystem;
const std::string kFile = "diffusion_pytorch_model.safetensors";

Error invalid(const std::string& what) {
  return fail(ErrorCode::kInvalid, text("model.init: ", what));
}

// The folder of a conversion, until its weights are uploaded: up to 2.4 GB.
class Scratch {
 public:
  static Result<Scratch> create(const Surroundings& around) {
    std::string path = around.environment("TMPDIR").value_or("/tmp") + "/skerry-init-XXXXXX";
    if (::mkdtemp(path.data()) == nullptr) return system_error("make the folder", path, errno);
    return Scratch(path);
  }
  Scratch(Scratch&& other) noexcept : path_(std::exchange(other.path_, "")) {}
  Scratch& operator=(Scratch&&) = delete;
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  explicit Scratch(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

std::string shape_of(std::uint32_t width, std::uint32_t depth, std::uint32_t heads,
                     std::uint32_t patch, std::uint32_t channels) {
  return text("width ", width, ", depth ", depth, ", heads ", heads, ", patch_size ", patch, ", ",
              channels, " channels");
}

// What the configs say; the tensors are checked later.
Result<void> check_config(const InitialWeights& weights, const pb::ModelSpec& model) {
  const ModelSpec& found = weights.config.model;
  const std::string expected =
      shape_of(model.width(), model.depth(), model.heads(), model.patch_size(), model.channels());
  const std::string is =
      shape_of(found.width, found.depth, found.heads, found.patch_size, found.channels);
  if (is != expected) {
    return invalid(text("the weights in ", weights.folder, " are not of this model: expected ",
                        expected, ", found ", is,
                        "; leave the shape out of [model] to take theirs"));
  }
  if (!found.is_pixart()) return {};
  if (model.caption_dim() == 0) {
    return invalid(text("the weights in ", weights.folder,
                        " read captions, and the run has none: expected a dataset with text"));
  }
  if (model.caption_dim() == found.caption_dim) return {};
  return invalid(text("the weights in ", weights.folder, " read captions of ", found.caption_dim,
                      " numbers a token, and those of the dataset have ", model.caption_dim(),
                      ": add the dataset with the text encoder of the weights"));
}

Result<void> check_tensors(const std::string& folder, const storage::Safetensors& file,
                           const pb::ModelSpec& model) {
  const auto other_shape = [&](const std::string& what) {
    return invalid(text("the weights in ", folder, " are not of this model (width ", model.width(),
                        ", depth ", model.depth(), ", patch ", model.patch_size(), ", ",
                        model.channels(), " channels, ", model.classes(), " classes): ", what));
  };
  std::set<std::string> expected;
  for (const ExportedTensor& tensor : exported_tensors(model)) {
    expected.insert(tensor.name);
    const storage::TensorInfo* found = file.header().find(tensor.name);
    if (found == nullptr) return other_shape(text(tensor.name, " is missing"));
    if (found->dtype == storage::DType::kF32 && found->shape == tensor.shape) continue;
    return other_shape(text(tensor.name, " should be F32 ", shape_words(tensor.shape), ", found ",
                            storage::name_of(found->dtype), " ", shape_words(found->shape)));
  }
  for (const storage::TensorInfo& tensor : file.header().tensors) {
    if (!expected.contains(tensor.name))
      return other_shape(text(printable(tensor.name), " is no part of it"));
  }
  return {};
}

Result<std::string> why_convert(const InitialWeights& weights, const pb::ModelSpec& model) {
  ASSIGN_OR_RETURN(const InitObjective objective, parse_init_objective(weights.objective));
  ASSIGN_OR_RETURN(const auto ddpm, schedule_of(weights.folder, objective));
  const PretrainedConfig& config = weights.config;
  if (ddpm) return std::string("predict noise");
  if (model.caption_dim() > 0 && !config.model.is_pixart()) return std::string("know no captions");
  if (config.out_channels != config.model.channels) return std::string("predict a variance");
  const std::string path = weights.folder + "/" + kFile;
  std::error_code error;
  if (fs::exists(path + ".index.json", error)) return std::string("are spread over several files");
  if (!fs::exists(path, error)) {
    return fail(ErrorCode::kNotFound,
                text("model.init: ", weights.folder, " holds no ", kFile,
                     ": expected expert_K/ of a folder that `skerry ensemble fetch` wrote, or the "
                     "transformer/ of a public DiT or PixArt"));
  }
  ASSIGN_OR_RETURN(const storage::Safetensors file, storage::Safetensors::open(path));
  for (const storage::TensorInfo& tensor : file.header().tensors) {
    if (tensor.name == "pos_embed.pos_embed") return std::string("hold their positions");
    if (tensor.dtype != storage::DType::kF32) return std::string("are not F32");
  }
  TRY(check_tensors(weights.folder, file, model));
  return std::string();
}

Result<void> convert(Command& command, const InitialWeights& weights, const std::string& why,
                     const pb::ModelSpec& model, const std::string& output) {
  const auto engine = command.around.find_program("skerry-engine");
  if (!engine) {
    return fail(engine.error().code,
                text("model.init: the weights in ", weights.folder, " ", why,
                     ", so skerry-engine must convert them, and ", engine.error().message,
                     ": install it here, or run `skerry-engine convert ", weights.folder,
                     " --out DIR` where it is and set init to DIR"));
  }
  command.around.err() << "converting " << weights.folder << ", whose weights " << why << std::endl;
  std::vector<std::string> words{*engine, "convert", weights.folder, "--out", output};
  words.insert(words.end(), {"--objective", weights.objective});
  if (model.caption_dim() > 0)
    words.insert(words.end(), {"--caption-dim", text(model.caption_dim())});
  ASSIGN_OR_RETURN(const int status, command.around.run_program(words, [&](const auto& line) {
    command.around.err() << printable(line) << std::endl;
  }));
  if (status == 0) return {};
  return fail(code_of_engine(status),
              text("model.init: the conversion of ", weights.folder, " failed (status ", status,
                   "); the reason stands above"));
}

Result<std::string> upload_file(Command& command, const std::string& folder,
                                const pb::ModelSpec& model) {
  const std::string path = folder + "/" + kFile;
  ASSIGN_OR_RETURN(const storage::NamedManifest manifest,
                   storage::build_file_manifest(path, kFile));
  const std::string name = text("weights-", manifest.name.hex().substr(0, 16));
  const Result<pb::DatasetInfo> there = one_dataset(command, name);
  if (there.has_value() && there->state() == "ready") return name;
  if (!there.has_value() && there.error().code != ErrorCode::kNotFound) return there.error();
  DatasetIndex index{.folder = folder, .json = "{}", .partitions = 1};
  index.channels = model.channels();
  index.image_size = model.image_size();
  index.files.push_back({kFile, "weights", -1, 0, fs::file_size(path)});
  TRY(upload(command, name, index));
  return name;
}

}  // namespace

Result<InitialWeights> open_initial_weights(const RunFile& file) {
  const std::string& folder = file.spec.init();
  Result<PretrainedConfig> config = read_pretrained_config(folder);
  if (!config) return fail(config.error().code, text("model.init: ", config.error().message));
  return InitialWeights{folder, file.init_objective, std::move(*config)};
}

void take_shape(const InitialWeights& weights, const RunFile& file, pb::RunSpec& spec) {
  if (file.names_shape) return;
  const ModelSpec& model = weights.config.model;
  spec.clear_preset();
  spec.set_width(model.width);
  spec.set_depth(model.depth);
  spec.set_heads(model.heads);
  spec.set_patch_size(model.patch_size);
}

Result<std::string> check_initial_weights(const InitialWeights& weights,
                                          const pb::ModelSpec& model) {
  TRY(check_config(weights, model));
  return why_convert(weights, model);
}

Result<std::string> upload_initial_weights(Command& command, const InitialWeights& weights,
                                           const pb::ModelSpec& model) {
  ASSIGN_OR_RETURN(const std::string why, check_initial_weights(weights, model));
  if (why.empty()) return upload_file(command, weights.folder, model);
  ASSIGN_OR_RETURN(const Scratch scratch, Scratch::create(command.around));
  TRY(convert(command, weights, why, model, scratch.path()));
  ASSIGN_OR_RETURN(const storage::Safetensors file,
                   storage::Safetensors::open(scratch.path() + "/" + kFile));
  TRY(check_tensors(weights.folder, file, model));
  return upload_file(command, scratch.path(), model);
}

}  // namespace skerry::cli
