// SPDX-License-Identifier: Apache-2.0
// Builders of small inputs for tests: images in each format, in a folder that
// is removed with its object.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/temp_folder.h"
#include "diffusion/formats/image.h"

namespace skerry::diffusion::testing {

class TemporaryFolder {
 public:
  std::string path(const std::string& name = "") const {
    return name.empty() ? folder_.path().string() : folder_ / name;
  }
  // Writes a file below the folder and creates the folders between.
  // RETURNS: its path.
  std::string write(const std::string& name, const std::string& bytes) const;

 private:
  TempFolder folder_;
};

std::string read_file(const std::string& path);

// A smooth picture that differs with `variant`; grey where channels = 1.
Image picture(int width, int height, int channels, std::uint32_t variant);
std::string png_bytes(const Image& image);
std::string jpeg_bytes(const Image& image);
// Without loss; grey, RGB or RGBA.
std::string webp_bytes(const Image& image);

std::string idx_images(const std::vector<Image>& images);
std::string idx_labels(const std::vector<std::uint8_t>& labels);
// A NumPy file: its type as NumPy spells it, its shape and its bytes.
std::string npy_file(const std::string& type, const std::vector<std::uint64_t>& shape,
                     const std::string& bytes);
std::string floats(const std::vector<float>& values);  // their bytes
// A NumPy file of [rows, columns], of type <f4.
std::string npy_bytes(std::size_t rows, std::size_t columns, const std::vector<float>& values);
// A record of CIFAR's binary form; the image is 32 x 32 RGB.
std::string cifar_record(const std::vector<std::uint8_t>& labels, const Image& image);
std::string gzipped(const std::string& bytes);

using TarMembers =
    std::vector<std::pair<std::string, std::string>>;  // name ending in '/': a folder
std::string tar_bytes(const TarMembers& members);

// `count` pictures of `kinds` clearly different kinds, in folders named after
// the kind: "kind-0" …
void write_image_folder(const TemporaryFolder& folder, const std::string& name, std::uint32_t count,
                        std::uint32_t kinds, int size, int channels);

}  // namespace skerry::diffusion::testing
