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

}  // namespace snug::models
