// Adafactor (Shazeer & Stern 2018) as torch.optim.Adafactor computes it, one tensor a call. The
// second moment V of a matrix (R, C) is kept as a mean per row and one per column, that of a vector
// whole:
//   w = t^beta2_decay;  row += (mean over columns of g^2 - row) * w;  column likewise
//   V = row * column / max(mean(row), eps1);  u = g / sqrt(max(V, eps1^2))
//   p *= 1 - lr * weight_decay
//   p -= max(eps2, rms(p)) * min(lr, 1 / sqrt(t)) / max(1, rms(u) / d) * u
// float32 inside, norms in double. Three sweeps, as rms(u) must be known before the update: 24
// bytes a float32 parameter.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "core/kernels/cpu/scalar.h"

namespace snug::kernels::cpu {

struct AdafactorTensor {
  int64_t count = 0;  // rows * cols
  int64_t rows = 0;   // 1 for a vector
  int64_t cols = 0;
  void* param = nullptr;
  const void* grad = nullptr;
  float* row_var = nullptr;  // (R), null for a vector
  float* col_var = nullptr;  // (C); a vector's whole second moment
  float* master = nullptr;   // as in adamw.h
  Scalar param_type = Scalar::F32;
  Scalar grad_type = Scalar::F32;
  uint64_t tensor_id = 0;
};

struct AdafactorOptions {
  double lr = 1e-2;
  double beta2_decay = -0.8;
  double eps1 = 0x1p-23;  // float32's epsilon
  double eps2 = 1e-3;
  double d = 1.0;  // clipping threshold
  double weight_decay = 0;
  int64_t step = 1;  // t, the first step is 1
  float grad_scale = 1.0f;
  bool stochastic_rounding = false;  // as in adamw.h
  uint64_t seed = 0;
  int num_threads = 0;
};

// Rows are summed in slabs of `height`, so that the order of summation does not depend on the
// number of threads.
struct AdafactorSlabs {
  int64_t height = 0, count = 0;
};
AdafactorSlabs adafactor_slabs(int64_t rows, int64_t cols);

// Workspace for each slab's column sums.
int64_t adafactor_workspace_bytes(int64_t rows, int64_t cols);
// GPU kernels need this in addition: a double per row, and some norms.
inline constexpr int64_t kAdafactorNormsBytes = 64;
inline int64_t adafactor_device_sums_bytes(int64_t rows) {
  return rows * static_cast<int64_t>(sizeof(double)) + kAdafactorNormsBytes;
}
void adafactor_step(const AdafactorTensor& tensor, const AdafactorOptions& options,
                    void* workspace);

}  // namespace snug::kernels::cpu
