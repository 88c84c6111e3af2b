// SPDX-License-Identifier: Apache-2.0
#include "diffusion/testing/test_images.h"

#include <archive.h>
#include <archive_entry.h>
#include <jpeglib.h>
#include <png.h>
#include <webp/encode.h>
#include <zlib.h>
#include <cstddef>
#include <cstdio>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/check.h"
#include "base/random.h"
#include "base/text.h"

namespace skerry::diffusion::testing {
namespace {

namespace fs = std::filesystem;

void put_big_endian(std::string& out, std::uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8)
    out.push_back(static_cast<char>(value >> shift & 0xff));
}

}  // namespace

std::string TemporaryFolder::write(const std::string& name, const std::string& bytes) const {
  fs::create_directories(fs::path(path(name)).parent_path());
  std::ofstream(path(name), std::ios::binary) << bytes;
  return path(name);
}

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

Image picture(int width, int height, int channels, std::uint32_t variant) {
  Image image{width, height, channels, {}};
  Stream stream(Position{.seed = variant, .purpose = Purpose::kSimulation});
  const double fx = 1 + 4 * stream.uniform(), fy = 1 + 4 * stream.uniform(),
               phase = 6 * stream.uniform();
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      for (int c = 0; c < channels; ++c) {
        const double wave = std::sin(fx * x / width + fy * y / height + phase + 0.7 * c);
        image.pixels.push_back(static_cast<std::uint8_t>(127.5 + 120 * wave));
      }
    }
  }
  return image;
}

std::string png_bytes(const Image& image) {
  png_image png;
  std::memset(&png, 0, sizeof png);
  png.version = PNG_IMAGE_VERSION;
  png.width = static_cast<png_uint_32>(image.width);
  png.height = static_cast<png_uint_32>(image.height);
  png.format = image.channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
  png_alloc_size_t size = 0;
  png_image_write_to_memory(&png, nullptr, &size, 0, image.pixels.data(), 0, nullptr);
  std::string out(size, '\0');
  png_image_write_to_memory(&png, out.data(), &size, 0, image.pixels.data(), 0, nullptr);
  out.resize(size);
  return out;
}

std::string jpeg_bytes(const Image& image) {
  jpeg_error_mgr errors;
  jpeg_compress_struct jpeg;
  jpeg.err = jpeg_std_error(&errors);
  jpeg_create_compress(&jpeg);
  unsigned char* buffer = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&jpeg, &buffer, &size);
  jpeg.image_width = static_cast<JDIMENSION>(image.width);
  jpeg.image_height = static_cast<JDIMENSION>(image.height);
  jpeg.input_components = image.channels;
  jpeg.in_color_space = image.channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
  jpeg_set_defaults(&jpeg);
  jpeg_set_quality(&jpeg, 95, TRUE);
  jpeg_start_compress(&jpeg, TRUE);
  const std::size_t line =
      static_cast<std::size_t>(image.width) * static_cast<std::size_t>(image.channels);
  while (jpeg.next_scanline < jpeg.image_height) {
    JSAMPROW row = const_cast<JSAMPROW>(image.pixels.data()) + line * jpeg.next_scanline;
    jpeg_write_scanlines(&jpeg, &row, 1);
  }
  jpeg_finish_compress(&jpeg);
  std::string out(reinterpret_cast<char*>(buffer), size);
  jpeg_destroy_compress(&jpeg);
  std::free(buffer);
  return out;
}

std::string webp_bytes(const Image& image) {
  Image full = image;
  if (image.channels == 1) {
    full.pixels.clear();
    for (const std::uint8_t pixel : image.pixels) full.pixels.insert(full.pixels.end(), 3, pixel);
  }
  std::uint8_t* encoded = nullptr;
  const auto encode = image.channels == 4 ? WebPEncodeLosslessRGBA : WebPEncodeLosslessRGB;
  const int line = image.width * (image.channels == 4 ? 4 : 3);
  const std::size_t size = encode(full.pixels.data(), image.width, image.height, line, &encoded);
  std::string out(reinterpret_cast<const char*>(encoded), size);
  WebPFree(encoded);
  return out;
}

std::string npy_file(const std::string& type, const std::vector<std::uint64_t>& shape,
                     const std::string& bytes) {
  std::string extents;
  for (const std::uint64_t extent : shape) extents += text(extents.empty() ? "" : " ", extent, ',');
  if (shape.size() > 1) extents.pop_back();  // as NumPy has it
  std::string header =
      text("{'descr': '", type, "', 'fortran_order': False, 'shape': (", extents, "), }");
  header.resize((header.size() + 11 + 63) / 64 * 64 - 11, ' ');
  header += '\n';
  std::string out("\x93NUMPY\x01\0", 8);
  out += static_cast<char>(header.size() & 0xff);
  out += static_cast<char>(header.size() >> 8);
  return out + header + bytes;
}

std::string floats(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

std::string npy_bytes(std::size_t rows, std::size_t columns, const std::vector<float>& values) {
  return npy_file("<f4", {rows, columns}, floats(values));
}

std::string cifar_record(const std::vector<std::uint8_t>& labels, const Image& image) {
  std::string out(labels.begin(), labels.end());
  for (std::size_t c = 0; c < 3; ++c) {
    for (std::size_t i = c; i < image.pixels.size(); i += 3)
      out.push_back(static_cast<char>(image.pixels[i]));
  }
  return out;
}

std::string idx_images(const std::vector<Image>& images) {
  std::string out;
  put_big_endian(out, 0x00000803);
  put_big_endian(out, static_cast<std::uint32_t>(images.size()));
  put_big_endian(out, static_cast<std::uint32_t>(images.at(0).height));
  put_big_endian(out, static_cast<std::uint32_t>(images.at(0).width));
  for (const Image& image : images) out.append(image.pixels.begin(), image.pixels.end());
  return out;
}

std::string idx_labels(const std::vector<std::uint8_t>& labels) {
  std::string out;
  put_big_endian(out, 0x00000801);
  put_big_endian(out, static_cast<std::uint32_t>(labels.size()));
  out.append(labels.begin(), labels.end());
  return out;
}

std::string gzipped(const std::string& bytes) {
  z_stream stream{};
  deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&stream, bytes.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

std::string tar_bytes(const TarMembers& members) {
  std::string out(1U << 22, '\0');
  archive* handle = archive_write_new();
  archive_write_set_format_ustar(handle);
  archive_write_set_bytes_per_block(handle, 512);
  std::size_t used = 0;
  archive_write_open_memory(handle, out.data(), out.size(), &used);
  for (const auto& [name, bytes] : members) {
    archive_entry* entry = archive_entry_new();
    archive_entry_set_pathname(entry, name.c_str());
    archive_entry_set_filetype(entry, name.ends_with('/') ? AE_IFDIR : AE_IFREG);
    archive_entry_set_perm(entry, 0644);
    archive_entry_set_size(entry, static_cast<la_int64_t>(bytes.size()));
    SKERRY_CHECK(archive_write_header(handle, entry) == ARCHIVE_OK, "tar header");
    archive_write_data(handle, bytes.data(), bytes.size());
    archive_entry_free(entry);
  }
  archive_write_close(handle);
  archive_write_free(handle);
  out.resize(used);
  return out;
}

void write_image_folder(const TemporaryFolder& folder, const std::string& name, std::uint32_t count,
                        std::uint32_t kinds, int size, int channels) {
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint32_t kind = i % kinds;
    Image image = picture(size, size, channels, kind);
    const Image other = picture(size, size, channels, 1000 + i);
    for (std::size_t p = 0; p < image.pixels.size(); ++p) {
      image.pixels[p] = static_cast<std::uint8_t>((7 * image.pixels[p] + other.pixels[p]) / 8);
    }
    folder.write(name + "/kind-" + std::to_string(kind) + "/" + std::to_string(i) + ".png",
                 png_bytes(image));
  }
}

}  // namespace skerry::diffusion::testing
