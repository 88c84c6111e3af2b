// SPDX-License-Identifier: Apache-2.0
#include "storage/safetensors.h"

#include <variant>

#include "base/text.h"
#include "storage/files.h"
#include "storage/tensor_size.h"

namespace skerry::storage {
namespace {

Result<void> check_sizes(const std::vector<TensorView>& tensors) {
  for (const TensorView& tensor : tensors) {
    const auto bytes = tensor_bytes(tensor.dtype, tensor.shape);
    if (!bytes || *bytes != tensor.data.size()) {
      return fail(ErrorCode::kInvalid, text("tensor \"", tensor.name, "\" has ", tensor.data.size(),
                                            " bytes of data, which do not fit its type and shape"));
    }
  }
  return {};
}

}  // namespace

struct Safetensors::Impl {
  std::variant<MappedFile, std::string> storage;
  SafetensorsHeader header;

  std::string_view bytes() const {
    if (const auto* mapped = std::get_if<MappedFile>(&storage)) return mapped->bytes();
    return std::get<std::string>(storage);
  }

  static Result<std::shared_ptr<const Impl>> check(std::variant<MappedFile, std::string> source) {
    auto impl = std::make_shared<Impl>();
    impl->storage = std::move(source);
    ASSIGN_OR_RETURN(impl->header, parse_safetensors_header(impl->bytes(), impl->bytes().size()));
    return std::shared_ptr<const Impl>(std::move(impl));
  }
};

Result<Safetensors> Safetensors::open(const std::string& path) {
  ASSIGN_OR_RETURN(MappedFile mapped, MappedFile::open(path));
  auto impl = Impl::check(std::move(mapped));
  if (!impl) return fail(impl.error().code, path + ": " + impl.error().message);
  Safetensors opened;
  opened.impl_ = std::move(*impl);
  return opened;
}

Result<Safetensors> Safetensors::map(int descriptor, std::uint64_t bytes) {
  Safetensors opened;
  ASSIGN_OR_RETURN(MappedFile mapped, MappedFile::map(descriptor, bytes, "the shared snapshot"));
  ASSIGN_OR_RETURN(opened.impl_, Impl::check(std::move(mapped)));
  return opened;
}

Result<Safetensors> Safetensors::parse(std::string bytes) {
  Safetensors opened;
  ASSIGN_OR_RETURN(opened.impl_, Impl::check(std::move(bytes)));
  return opened;
}

const SafetensorsHeader& Safetensors::header() const { return impl_->header; }
std::string_view Safetensors::file() const { return impl_->bytes(); }

Result<TensorView> Safetensors::tensor(std::string_view name) const {
  const TensorInfo* info = impl_->header.find(name);
  if (info == nullptr)
    return fail(ErrorCode::kNotFound, text("no tensor \"", name, "\" in the file"));
  return view(*info);
}

TensorView Safetensors::view(const TensorInfo& info) const {
  const std::string_view data =
      impl_->bytes().substr(impl_->header.data_start + info.begin, info.bytes());
  return TensorView{info.name, info.dtype, info.shape, data};
}

Result<void> write_safetensors(const std::string& path, const std::vector<TensorView>& tensors,
                               const std::map<std::string, std::string>& metadata) {
  TRY(check_sizes(tensors));
  ASSIGN_OR_RETURN(const std::string header, safetensors_header(tensors, metadata));
  ASSIGN_OR_RETURN(PartialFile file, PartialFile::create(path));
  TRY(file.append(header));
  for (const TensorView& tensor : tensors) TRY(file.append(tensor.data));
  return file.commit();
}

Result<std::string> encode_safetensors(const std::vector<TensorView>& tensors,
                                       const std::map<std::string, std::string>& metadata) {
  TRY(check_sizes(tensors));
  ASSIGN_OR_RETURN(std::string bytes, safetensors_header(tensors, metadata));
  for (const TensorView& tensor : tensors) bytes += tensor.data;
  return bytes;
}

}  // namespace skerry::storage
