// SPDX-License-Identifier: Apache-2.0
#include "models/same_tensor.h"

#include <cstring>
#include <span>

namespace snug::models {

bool same_tensor(const files::TensorSource& tensors, const files::TensorInfo& a,
                 const files::TensorInfo& b) {
  if (a.shape != b.shape || a.dtype != b.dtype) return false;
  const std::span<const std::byte> left = tensors.raw(a), right = tensors.raw(b);
  const bool same = !left.empty() && (left.data() == right.data() ||
                                      std::memcmp(left.data(), right.data(), left.size()) == 0);
  tensors.release(a);
  tensors.release(b);
  return same;
}

}  // namespace snug::models
