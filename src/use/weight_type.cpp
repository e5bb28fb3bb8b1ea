// SPDX-License-Identifier: Apache-2.0
#include "use/weight_type.h"

#include "base/error.h"

namespace snug::use {
namespace {

// The type of most weights in the source; quantized ones become bfloat16.
at::ScalarType source_type(const models::Checkpoint& checkpoint) {
  int64_t bytes_f32 = 0;
  int64_t bytes_f16 = 0;
  for (const files::TensorInfo& tensor : checkpoint.tensors->tensors()) {
    if (tensor.shape.size() < 2) continue;
    if (tensor.dtype == files::DType::F32) bytes_f32 += tensor.nbytes;
    if (tensor.dtype == files::DType::F16) bytes_f16 += tensor.nbytes;
  }
  const int64_t half = checkpoint.tensors->total_bytes() / 2;
  return bytes_f32 > half ? at::kFloat : bytes_f16 > half ? at::kHalf : at::kBFloat16;
}

}  // namespace

at::ScalarType weight_type(const std::string& name, const models::Checkpoint& source) {
  if (name.empty()) return source_type(source);
  if (name == "float32" || name == "f32") return at::kFloat;
  if (name == "bfloat16" || name == "bf16") return at::kBFloat16;
  if (name == "float16" || name == "f16") return at::kHalf;
  throw UserError("--dtype {} is unknown; choose float32, bfloat16 or float16", name);
}

}  // namespace snug::use
