// What a checkpoint holds that its model has no place for.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <set>
#include <string>
#include <vector>

#include "formats/tensor_source.h"

namespace snug::models {

// Names of the tensors that are not among `read`, without those that say nothing of the model: what
// older releases of transformers stored beside the weights (masks, rotary frequencies, positions),
// and second copies of what is read.
std::vector<std::string> unread_tensors(const formats::TensorSource& tensors,
                                        const std::set<const formats::TensorInfo*>& read);

}  // namespace snug::models
