// SPDX-License-Identifier: Apache-2.0
#include "core/ops/linear/row_room.h"

#include <algorithm>

namespace snug::ops {
namespace {

thread_local int64_t rows_up_to = 0;  // of the rehearsal; 0: none

// The most over 1 to `size` of one of the product's sizes.
int64_t most_bytes(kernels::cpu::GemmArgs args, int64_t kernels::cpu::GemmArgs::*size) {
  int64_t most = 0;
  for (; args.*size > 0; --(args.*size))
    most = std::max(most, kernels::cpu::gemm_workspace_bytes(args));
  return most;
}

}  // namespace

int64_t product_workspace_bytes(const kernels::cpu::GemmArgs& args) {
  if (rows_up_to == 0) return kernels::cpu::gemm_workspace_bytes(args);
  // Rows are the first size, or what a weight's gradient sums over.
  int64_t most = kernels::cpu::gemm_workspace_bytes(args);
  if (args.m == rows_up_to) most = std::max(most, most_bytes(args, &kernels::cpu::GemmArgs::m));
  if (args.k == rows_up_to) most = std::max(most, most_bytes(args, &kernels::cpu::GemmArgs::k));
  return most;
}

Rehearsal::Rehearsal(at::DeviceType device, int64_t rows) : device_(device), saved_(rows_up_to) {
  rows_up_to = rows;
}

Rehearsal::~Rehearsal() { rows_up_to = saved_; }

}  // namespace snug::ops
