// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include "core/memory/guards.h"

namespace snug::dist {

// Memory for a collective, tagged as communication.
inline at::Tensor staging_memory(int64_t bytes, at::Device device) {
  const memory::CategoryGuard guard(memory::Category::Communication);
  return at::empty({bytes}, at::TensorOptions().dtype(at::kByte).device(device));
}

}  // namespace snug::dist
