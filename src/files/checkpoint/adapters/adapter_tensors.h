// Shared by the readers of adapters: reading a tensor, and checking that a module's tensors fit
// each other and the configuration.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "files/checkpoint/adapters/adapter.h"
#include "files/weights/tensor_source.h"

namespace snug::checkpoint {

// Reads a tensor in its stored type (float64 as float32). Throws UserError for integer types and
// for values that are not finite.
at::Tensor read_adapter_tensor(const files::TensorSource& source, const files::TensorInfo& info);

// Sets each module's scaling. Throws UserError, beginning with `where`, for a missing matrix, wrong
// shapes, a rank other than the configuration's, or a module that the configuration does not name.
void check_and_scale(Adapter& adapter, const std::string& where);

}  // namespace snug::checkpoint
