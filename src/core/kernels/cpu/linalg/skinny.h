// Products with few rows (generation: one token a sequence). They are bound by reading B once, so B
// is not packed: its elements go from memory straight into multiply-adds.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/kernels/cpu/linalg/gemm.h"

namespace snug::kernels::cpu {

// True also for k = 0, where only C's beta and bias remain.
bool is_skinny(const GemmArgs& args);
int64_t skinny_workspace_bytes(const GemmArgs& args);
void skinny_gemm(const GemmArgs& args, void* workspace);

}  // namespace snug::kernels::cpu
