// Whether two tensors of a checkpoint are equal: a tied weight may be stored twice.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "files/weights/tensor_source.h"

namespace snug::models {

// Compares type, shape and bytes. Different weights differ early, so this is cheap; only equal
// tensors are read whole. False for strided tensors of a .pth.
bool same_tensor(const files::TensorSource& tensors, const files::TensorInfo& a,
                 const files::TensorInfo& b);

}  // namespace snug::models
