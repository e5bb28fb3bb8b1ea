// What the readers of adapters share: one tensor of a file in memory, and the check that the
// tensors of a module fit each other and the configuration.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "checkpoint/adapter.h"
#include "formats/tensor_source.h"

namespace snug::checkpoint {

// In the type that is stored, float32 for float64. Throws UserError for whole numbers and for
// values that are not finite.
at::Tensor read_adapter_tensor(const formats::TensorSource& source,
                               const formats::TensorInfo& info);

// Sets each module's scaling. Throws UserError beginning with `where`: a missing matrix, shapes
// that do not fit, another rank than the configuration's, a module that it does not name.
void check_and_scale(Adapter& adapter, const std::string& where);

}  // namespace snug::checkpoint
