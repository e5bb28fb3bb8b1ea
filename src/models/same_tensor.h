// Whether two tensors of a checkpoint are one: what is stored twice was tied.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "formats/tensor_source.h"

namespace snug::models {

// Of one type, shape and bytes. Different weights differ early, which makes the question cheap; a
// copy is read whole. False for strided tensors of a .pth.
bool same_tensor(const formats::TensorSource& tensors, const formats::TensorInfo& a,
                 const formats::TensorInfo& b);

}  // namespace snug::models
