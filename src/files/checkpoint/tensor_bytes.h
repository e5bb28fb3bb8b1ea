// A tensor's type and bytes for the file formats.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <span>

#include "files/weights/dtype.h"

namespace snug::checkpoint {

// Throws InternalError for a type that is never written.
files::DType dtype_of(at::ScalarType type);
inline files::DType dtype_of(const at::Tensor& tensor) { return dtype_of(tensor.scalar_type()); }

// Valid while the tensor lives.
std::span<const std::byte> bytes_of(const at::Tensor& contiguous);

}  // namespace snug::checkpoint
