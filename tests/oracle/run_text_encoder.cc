// SPDX-License-Identifier: Apache-2.0
// What `skerry-engine ingest --text-encoder` makes of tokens.
// `run-text-encoder DIR IN OUT [DEVICE]` reads `ids` I32 [n,L] of one
// safetensors file and writes `tokens` [n,L,d] to another. A refusal goes to
// standard error.
#include <cstdio>
#include <cstdlib>

#include "diffusion/model/text_encoder.h"
#include "storage/safetensors.h"

namespace skerry {
namespace {

Result<void> run(const std::string& folder, const std::string& in, const std::string& out,
                 int device) {
  ASSIGN_OR_RETURN(const auto files, diffusion::TextEncoderFiles::open(folder));
  ASSIGN_OR_RETURN(const auto opened, diffusion::open_text_encoder(files, device, /*threads=*/1));
  ASSIGN_OR_RETURN(const storage::Safetensors file, storage::Safetensors::open(in));
  ASSIGN_OR_RETURN(const storage::TensorView ids, file.tensor("ids"));
  const std::uint64_t captions = ids.shape[0], length = ids.shape[1];
  ASSIGN_OR_RETURN(
      const std::vector<float> tokens,
      opened.encoder->encode(
          {reinterpret_cast<const std::int32_t*>(ids.data.data()), captions * length}, captions));
  const storage::TensorView view{"tokens",
                                 storage::DType::kF32,
                                 {captions, length, opened.encoder->dim()},
                                 storage::bytes_of_values<float>(tokens)};
  return storage::write_safetensors(out, {view}, {{"identity", opened.identity.hex()}});
}

}  // namespace
}  // namespace skerry

int main(int argc, char** argv) {
  if (argc != 4 && argc != 5) {
    std::fprintf(stderr, "usage: run-text-encoder DIR IN OUT [DEVICE]\n");
    return 2;
  }
  const auto done = skerry::run(argv[1], argv[2], argv[3], argc == 5 ? std::atoi(argv[4]) : -1);
  if (done) return 0;
  std::fprintf(stderr, "%s\n", done.error().message.c_str());
  return 1;
}
