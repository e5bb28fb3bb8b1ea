// Finds tensors of a checkpoint that its model does not use.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <set>
#include <string>
#include <vector>

#include "files/weights/tensor_source.h"

namespace snug::models {

// Names of tensors that are not in `read`, without harmless ones: buffers that older releases of
// transformers stored (masks, rotary frequencies, positions) and second copies of tensors that are
// read.
std::vector<std::string> unread_tensors(const files::TensorSource& tensors,
                                        const std::set<const files::TensorInfo*>& read);

// Whether two tensors of a checkpoint are equal: a tied weight may be stored twice.

// Compares type, shape and bytes. Different weights differ early, so this is cheap; only equal
// tensors are read whole. False for strided tensors of a .pth.
bool same_tensor(const files::TensorSource& tensors, const files::TensorInfo& a,
                 const files::TensorInfo& b);

}  // namespace snug::models
