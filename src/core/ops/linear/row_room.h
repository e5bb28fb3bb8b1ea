// How much memory products need at most where their number of rows shows only while they run, so
// that a plan can foresee it: a rehearsal on meta with as many rows as there may be.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include "core/kernels/cpu/linalg/gemm.h"
#include "core/memory/meta_count.h"
#include "core/ops/device/device.h"

namespace snug::ops {

// Scratch of a product on the CPU. While a rehearsal is under way: the most that it is for any
// number of rows up to the rehearsal's, since fewer rows may need more.
int64_t product_workspace_bytes(const kernels::cpu::GemmArgs& args);

// While it lives, this thread's meta tensors stand for those of the device, and products of `rows`
// rows for products of 1 to `rows`.
class Rehearsal {
 public:
  Rehearsal(at::DeviceType device, int64_t rows);
  ~Rehearsal();
  Rehearsal(const Rehearsal&) = delete;
  Rehearsal& operator=(const Rehearsal&) = delete;

  // What is live now is there anyway.
  void begin() { count_.begin(); }
  int64_t peak() const { return count_.peak(); }

 private:
  StandInGuard device_;
  memory::MetaCount count_;
  int64_t saved_;
};

}  // namespace snug::ops
