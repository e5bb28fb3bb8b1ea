// The formulas of all.def.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/kernels/optimizers/lion.h"  // IWYU pragma: export
#include "core/kernels/optimizers/sgd.h"   // IWYU pragma: export
