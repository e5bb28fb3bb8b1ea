// SPDX-License-Identifier: Apache-2.0
#include "files/checkpoint/tensor_bytes.h"

#include "base/error.h"

namespace snug::checkpoint {

files::DType dtype_of(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return files::DType::F32;
    case at::kBFloat16:
      return files::DType::BF16;
    case at::kHalf:
      return files::DType::F16;
    case at::kByte:
      return files::DType::U8;
    default:
      throw InternalError(fmt::format("tensors of type {} are not written", c10::toString(type)));
  }
}

std::span<const std::byte> bytes_of(const at::Tensor& tensor) {
  SNUG_CHECK(tensor.is_contiguous(), "bytes of a strided tensor");
  return {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()};
}

}  // namespace snug::checkpoint
