// SPDX-License-Identifier: Apache-2.0
#include <csetjmp>
#include <cstddef>
#include <cstdio>
// jpeglib.h needs the two above first.
#include <jerror.h>
#include <jpeglib.h>

#include <array>
#include <string>

#include "base/text.h"
#include "diffusion/formats/image.h"

namespace skerry::diffusion {
namespace {

// libjpeg reports by calling back and must not return from a fatal error, hence
// the jump. Nothing with a destructor is born between setjmp and the jump: all
// of it lives in this struct.
struct Decoder {
  jpeg_error_mgr errors{};
  jpeg_decompress_struct jpeg{};
  std::jmp_buf escape{};
  bool cut_short = false;
  std::array<char, JMSG_LENGTH_MAX> message{};
  Image image;
};

void on_error(j_common_ptr common) {
  auto* decoder = static_cast<Decoder*>(common->client_data);
  (*common->err->format_message)(common, decoder->message.data());
  std::longjmp(decoder->escape, 1);
}

// Warnings about missing data mean half an image of grey; other warnings are
// harmless and common.
void on_message(j_common_ptr common, int level) {
  if (level >= 0) return;
  auto* decoder = static_cast<Decoder*>(common->client_data);
  const int code = common->err->msg_code;
  if (code != JWRN_JPEG_EOF && code != JWRN_HIT_MARKER && code != JWRN_HUFF_BAD_CODE) return;
  if (!decoder->cut_short) (*common->err->format_message)(common, decoder->message.data());
  decoder->cut_short = true;
}

bool decode(Decoder& decoder, std::string_view bytes, std::int64_t max_pixels) {
  if (setjmp(decoder.escape) != 0) return false;
  jpeg_decompress_struct& jpeg = decoder.jpeg;
  jpeg_create_decompress(&jpeg);
  jpeg.client_data = &decoder;
  jpeg_mem_src(&jpeg, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
  jpeg_read_header(&jpeg, TRUE);
  if (std::int64_t{jpeg.image_width} * jpeg.image_height > max_pixels) {
    std::snprintf(decoder.message.data(), decoder.message.size(), "%ux%u pixels are too many",
                  jpeg.image_width, jpeg.image_height);
    return false;
  }
  jpeg.out_color_space = JCS_RGB;
  jpeg.dct_method = JDCT_ISLOW;
  jpeg_start_decompress(&jpeg);
  decoder.image.width = static_cast<int>(jpeg.output_width);
  decoder.image.height = static_cast<int>(jpeg.output_height);
  decoder.image.channels = 3;
  decoder.image.pixels.resize(std::size_t{jpeg.output_width} * jpeg.output_height * 3);
  while (jpeg.output_scanline < jpeg.output_height) {
    JSAMPROW row =
        decoder.image.pixels.data() + std::size_t{jpeg.output_scanline} * jpeg.output_width * 3;
    jpeg_read_scanlines(&jpeg, &row, 1);
  }
  jpeg_finish_decompress(&jpeg);
  return !decoder.cut_short;
}

}  // namespace

Result<Image> decode_jpeg(std::string_view bytes, std::int64_t max_pixels) {
  Decoder decoder;
  decoder.jpeg.err = jpeg_std_error(&decoder.errors);
  decoder.errors.error_exit = on_error;
  decoder.errors.emit_message = on_message;
  decoder.jpeg.client_data = &decoder;
  const bool whole = decode(decoder, bytes, max_pixels);
  jpeg_destroy_decompress(&decoder.jpeg);
  if (!whole) return fail(ErrorCode::kCorrupt, text("JPEG: ", decoder.message.data()));
  return std::move(decoder.image);
}

}  // namespace skerry::diffusion
