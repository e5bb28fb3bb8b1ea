// A call for the element type that a Scalar names; for the files that are built once per
// instruction set, see simd.h.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/kernels/cpu/linalg/simd.h"
#include "core/kernels/scalar.h"

namespace snug::kernels::cpu {
namespace {

// Calls body(F32{} or BF16{} or F16{}).
template <class Body>
SNUG_INLINE void with_type(Scalar type, Body body) {
  if (type == Scalar::F32) {
    body(F32{});
  } else if (type == Scalar::BF16) {
    body(BF16{});
  } else {
    body(F16{});
  }
}

template <class T>
SNUG_INLINE const typename T::storage* at(const void* data, int64_t offset) {
  return static_cast<const typename T::storage*>(data) + offset;
}

}  // namespace
}  // namespace snug::kernels::cpu
