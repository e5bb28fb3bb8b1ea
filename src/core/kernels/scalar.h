// The element types that kernels read and write. Arithmetic is always done in float32.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace snug::kernels {

enum class Scalar : uint8_t { F32, BF16, F16 };

// Internal linkage: files compiled for other instruction sets include this too.
static constexpr int64_t scalar_bytes(Scalar type) { return type == Scalar::F32 ? 4 : 2; }

}  // namespace snug::kernels
