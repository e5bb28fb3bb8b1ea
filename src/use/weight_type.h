// The type that weights are written in: one that was asked for, or the source's own.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/ScalarType.h>

#include <string>

#include "models/family.h"

namespace snug::use {

// `name`: --dtype; empty: the type of most weights in the source, bfloat16 for quantized ones.
at::ScalarType weight_type(const std::string& name, const models::Checkpoint& source);

}  // namespace snug::use
