// SPDX-License-Identifier: Apache-2.0
#include "diffusion/formats/source.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "base/text.h"

namespace skerry::diffusion {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kAccepted =
    "accepted are: a folder of .jpg/.jpeg/.png/.webp images (one folder per class, or flat), IDX "
    "files "
    "(train-images-idx3-ubyte[.gz] or the folder that holds it), CIFAR-10 and CIFAR-100 in binary "
    "form "
    "(data_batch_1.bin …, train.bin, or their folder), WebDataset tars (one .tar or a folder of "
    "them), "
    "latents [N,C,S,S] in .npy or .safetensors (one file or a folder of them) or as .npy in a "
    "WebDataset";
constexpr int kMaxFolderDepth = 16;

bool ends_with_any(std::string_view name, std::initializer_list<std::string_view> endings) {
  return std::any_of(endings.begin(), endings.end(),
                     [&](std::string_view e) { return name.ends_with(e); });
}

std::string lower(std::string_view name) {
  std::string out(name);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

struct Listing {
  std::vector<std::string> images;    // relative, readable by name or an image that is not read
  std::vector<std::string> tars;      // relative, in the folder itself
  std::vector<std::string> idx;       // names of IDX image files in the folder itself
  std::vector<std::string> cifar;     // names of CIFAR files in the folder itself
  std::vector<std::string> latents;   // relative, by name, without the files of their labels
  std::vector<std::string> metadata;  // relative: metadata.jsonl files
  std::map<std::string, int> others;
  bool has_readable_image = false;
};

void sort_into(Listing& listing, const std::string& relative, bool at_top) {
  if (is_readable_image_name(relative)) {
    listing.images.push_back(relative);
    listing.has_readable_image = true;
  } else if (at_top && is_tar_name(relative)) {
    listing.tars.push_back(relative);
  } else if (at_top && is_idx_images_name(relative)) {
    listing.idx.push_back(relative);
  } else if (at_top && is_cifar_name(relative)) {
    listing.cifar.push_back(relative);
  } else if (is_latents_name(relative)) {
    listing.latents.push_back(relative);
  } else if (fs::path(relative).filename() == "metadata.jsonl") {
    listing.metadata.push_back(relative);
  } else {
    if (is_unreadable_image_name(relative)) listing.images.push_back(relative);
    const std::string extension = lower_extension(relative);
    ++listing.others[extension.empty() ? "no extension" : extension];
  }
}

// A link to a folder that holds it.
bool is_loop(const fs::directory_entry& entry) {
  std::error_code error;
  if (!entry.is_symlink(error) || !entry.is_directory(error)) return false;
  const fs::path target = fs::canonical(entry.path(), error);
  const fs::path parent = fs::canonical(entry.path().parent_path(), error);
  const fs::path up = parent.lexically_relative(target);
  return error || up.empty() || *up.begin() != "..";
}

Result<Listing> list_folder(const fs::path& folder) {
  Listing listing;
  std::error_code error;
  fs::recursive_directory_iterator entry(folder, fs::directory_options::follow_directory_symlink,
                                         error);
  if (error) return fail(ErrorCode::kIo, text(folder.string(), ": ", error.message()));
  while (entry != fs::recursive_directory_iterator()) {
    const std::string name = entry->path().filename().string();
    std::error_code ignored;
    if (name.starts_with(".") || entry.depth() > kMaxFolderDepth || is_loop(*entry)) {
      entry.disable_recursion_pending();
    } else if (entry->is_regular_file(ignored)) {
      sort_into(listing, entry->path().lexically_relative(folder).string(), entry.depth() == 0);
    }
    entry.increment(error);
    if (error) return fail(ErrorCode::kIo, text(folder.string(), ": ", error.message()));
  }
  std::sort(listing.images.begin(), listing.images.end());
  std::sort(listing.tars.begin(), listing.tars.end());
  std::sort(listing.idx.begin(), listing.idx.end());
  std::sort(listing.cifar.begin(), listing.cifar.end());
  std::sort(listing.latents.begin(), listing.latents.end());
  std::sort(listing.metadata.begin(), listing.metadata.end());
  std::set<std::string> labels;
  for (const std::string& name : listing.latents) {
    if (name.ends_with(".npy")) labels.insert(labels_path(name));
  }
  std::erase_if(listing.latents, [&](const std::string& name) { return labels.contains(name); });
  return listing;
}

std::string describe_others(const Listing& listing) {
  if (listing.others.empty()) return "is empty";
  std::string out = "holds no image that can be read, only";
  int named = 0;
  for (const auto& [extension, count] : listing.others) {
    if (named++ == 5) return out + " and others";
    out += text(named == 1 ? " " : ", ", count, " × ", extension);
  }
  return out;
}

// What does not bear the name of a test set, if anything does not.
std::vector<std::string> training_files(const std::vector<std::string>& names) {
  const auto is_test = [](const std::string& name) {
    return name.starts_with("t10k") || name.starts_with("test");
  };
  std::vector<std::string> training;
  std::copy_if(names.begin(), names.end(), std::back_inserter(training),
               [&](const auto& n) { return !is_test(n); });
  return training.empty() ? names : training;
}

std::vector<std::string> in_folder(const std::string& folder,
                                   const std::vector<std::string>& names) {
  std::vector<std::string> paths;
  for (const std::string& name : names) paths.push_back((fs::path(folder) / name).string());
  return paths;
}

Result<std::unique_ptr<Source>> open_cifar_of_folder(const std::string& folder,
                                                     const std::vector<std::string>& names) {
  const std::vector<std::string> training = training_files(names);
  const auto is_ten = [](const std::string& name) {
    return name.find("batch") != std::string::npos;
  };
  if (std::any_of(training.begin(), training.end(), is_ten) &&
      !std::all_of(training.begin(), training.end(), is_ten)) {
    return fail(ErrorCode::kInvalid,
                text(folder, " holds files of CIFAR-10 and of CIFAR-100: name the one to read"));
  }
  return open_cifar_source(in_folder(folder, training));
}

Result<std::unique_ptr<Source>> open_idx_of_folder(const std::string& folder,
                                                   const std::vector<std::string>& names) {
  const std::vector<std::string> training = training_files(names);
  if (training.size() > 1) {
    return fail(ErrorCode::kInvalid, text(folder, " holds several IDX image files (", training[0],
                                          ", ", training[1], " …): name the one to read"));
  }
  return open_idx_source((fs::path(folder) / training[0]).string());
}

Result<std::unique_ptr<Source>> open_directory(const std::string& path, CaptionChoice captions) {
  ASSIGN_OR_RETURN(const Listing listing, list_folder(path));
  if (!listing.idx.empty()) return open_idx_of_folder(path, listing.idx);
  if (!listing.cifar.empty()) return open_cifar_of_folder(path, listing.cifar);
  if (!listing.tars.empty()) return open_tar_source(in_folder(path, listing.tars), captions);
  if (listing.has_readable_image)
    return open_folder_source(path, listing.images, listing.metadata, captions);
  if (!listing.latents.empty()) return open_latent_source(path, listing.latents);
  return fail(ErrorCode::kInvalid,
              text(path, ": the folder ", describe_others(listing), "; ", kAccepted));
}

bool looks_like_idx(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  char magic[4] = {1, 1, 1, 1};
  in.read(magic, 4);
  return in && magic[0] == 0 && magic[1] == 0 && magic[2] == 8 && magic[3] == 3;
}

}  // namespace

std::string lower_extension(std::string_view name) {
  const std::size_t slash = name.rfind('/');
  const std::string_view base = slash == std::string_view::npos ? name : name.substr(slash + 1);
  const std::size_t dot = base.rfind('.');
  return dot == std::string_view::npos ? "" : lower(base.substr(dot));
}

bool is_readable_image_name(std::string_view name) {
  const std::string extension = lower_extension(name);
  return extension == ".jpg" || extension == ".jpeg" || extension == ".png" || extension == ".webp";
}

bool is_unreadable_image_name(std::string_view name) {
  return ends_with_any(lower_extension(name),
                       {".gif", ".bmp", ".tif", ".tiff", ".heic", ".avif", ".jp2"});
}

bool is_tar_name(std::string_view name) {
  return ends_with_any(lower(name), {".tar", ".tar.gz", ".tgz"});
}

bool is_cifar_name(std::string_view file_name) {
  if (file_name == "test_batch.bin" || file_name == "train.bin" || file_name == "test.bin")
    return true;
  return file_name.starts_with("data_batch_") && file_name.ends_with(".bin");
}

bool is_idx_images_name(std::string_view file_name) {
  return ends_with_any(file_name, {"images-idx3-ubyte", "images-idx3-ubyte.gz", "images.idx3-ubyte",
                                   "images.idx3-ubyte.gz", "images.idx3", "images.idx3.gz"});
}

Result<std::string> read_whole_file(const std::string& path, std::uint64_t limit_bytes) {
  std::error_code error;
  const std::uint64_t size = fs::file_size(path, error);
  if (error) return fail(ErrorCode::kIo, error.message());
  if (size > limit_bytes)
    return fail(ErrorCode::kCorrupt, text(human_bytes(size), " are too many: expected at most ",
                                          human_bytes(limit_bytes)));
  std::ifstream in(path, std::ios::binary);
  std::string bytes(size, '\0');
  in.read(bytes.data(), static_cast<std::streamsize>(size));
  if (!in) return fail(ErrorCode::kIo, "cannot be read");
  return bytes;
}

Result<std::unique_ptr<Source>> open_source(const std::string& path, CaptionChoice captions) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found)
    return fail(ErrorCode::kNotFound, text(path, ": no such file or folder"));
  if (error) return fail(ErrorCode::kIo, text(path, ": ", error.message()));
  if (fs::is_directory(status)) return open_directory(path, captions);
  const std::string name = fs::path(path).filename().string();
  if (is_tar_name(name)) return open_tar_source({path}, captions);
  if (is_cifar_name(name)) return open_cifar_source({path});
  if (is_idx_images_name(name) || looks_like_idx(path)) return open_idx_source(path);
  if (is_latents_name(name))
    return open_latent_source(fs::path(path).parent_path().string(), {name});
  return fail(ErrorCode::kInvalid, text(path, ": the file's format is not known; ", kAccepted));
}

}  // namespace skerry::diffusion
