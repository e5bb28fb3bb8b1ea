// GGUF's numbers of types.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "files/weights/dtype.h"
#include "files/weights/gguf/gguf.h"

namespace snug::files {

inline constexpr uint64_t kGgufAlignment = 32;

// Bytes of one value; 0 for texts and arrays, which have no fixed size.
uint64_t scalar_bytes(GgufType type);

// Throws UserError for an unknown or unsupported type.
DType dtype_of_ggml(uint32_t number);
// Throws InternalError for a type that GGUF lacks.
uint32_t ggml_number(DType type);

}  // namespace snug::files
