// What optimizers' steps take, on the CPU and on a GPU: tensors, options, and the factors that
// follow from those, computed in double as torch computes them. A function for factors throws where
// options or tensors cannot be. Those that are a formula of one element: optimizers/.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "core/kernels/optimizers/formulas.h"
#include "core/kernels/scalar.h"

namespace snug::kernels {

// The formulas of optimizers/all.def. Factors of a step over these tensors; throws InternalError
// where options or tensors cannot be.
template <class Formula>
ElementFactors<Formula> element_factors(
    const ElementOptions& options, std::span<const ElementTensor<Formula::kStates>> tensors = {});

namespace cpu {
// All tensors in one sweep: each array is read and written once.
template <class Formula>
void element_step(std::span<const ElementTensor<Formula::kStates>> tensors,
                  const ElementOptions& options);
#define SNUG_ELEMENT_WISE(Formula)                                             \
  template <>                                                                  \
  void element_step<Formula>(std::span<const ElementTensor<Formula::kStates>>, \
                             const ElementOptions&);
#include "core/kernels/optimizers/all.def"
#undef SNUG_ELEMENT_WISE
}  // namespace cpu

// AdamW over a list of tensors in one sweep, as torch.optim.AdamW computes it:
//   p *= 1 - lr * weight_decay;  m += (g - m) * (1 - beta1);  v = v * beta2 + g * g * (1 - beta2)
//   p -= lr / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + eps)
// float32 inside; each array is read and written once (28 bytes a float32 parameter).
struct AdamWTensor {
  int64_t count = 0;
  void* param = nullptr;
  const void* grad = nullptr;
  void* exp_avg = nullptr;
  void* exp_avg_sq = nullptr;
  float* master = nullptr;  // optional float32 weights: read and updated, param is their rounding
  Scalar param_type = Scalar::F32;
  Scalar grad_type = Scalar::F32;
  Scalar state_type = Scalar::F32;  // F32 or BF16
  uint64_t tensor_id = 0;           // separates the random streams of stochastic rounding
};

struct AdamWOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 1e-2;
  int64_t step = 1;         // t, the first step is 1
  float grad_scale = 1.0f;  // multiplies every gradient: clipping, loss unscaling
  // Rounds BF16 params (those without master) up or down with the probability that keeps their
  // mean. The random bits depend only on (seed, step, tensor_id, index).
  bool stochastic_rounding = false;
  uint64_t seed = 0;
  int num_threads = 0;
};

// What is the same for all elements of a tensor in a step.
struct AdamWFactors {
  float decay = 1;  // 1 - lr * weight_decay
  float one_minus_beta1 = 0;
  float beta2 = 0;
  float one_minus_beta2 = 0;
  float step_size = 0;         // lr / (1 - beta1^t)
  float rsqrt_correction = 1;  // 1 / sqrt(1 - beta2^t)
  float eps = 0;
  float grad_scale = 1;
  bool stochastic = false;
  uint64_t random_key = 0;
};
AdamWFactors adamw_factors(const AdamWOptions& options, std::span<const AdamWTensor> tensors = {});

// AdamW with moments in 8 bits, as bitsandbytes' block-wise AdamW8bit: each block of 256 elements
// has a float32 scale (its largest magnitude) and codes of the dynamic maps (dynamic_map.h), signed
// for the first moment, unsigned for the second. A block's moments are decoded, updated as in
// AdamW in float32, used for the weights, and only then encoded again, to the nearest code. 2.03
// bytes of state a parameter; each array is read and written once.
inline constexpr int64_t kQuantizedBlock = 256;

struct AdamW8bitTensor {
  int64_t count = 0;
  void* param = nullptr;
  const void* grad = nullptr;
  uint8_t* exp_avg = nullptr;
  uint8_t* exp_avg_sq = nullptr;
  float* exp_avg_absmax = nullptr;     // one a block; 0 makes the block's codes mean 0
  float* exp_avg_sq_absmax = nullptr;  // as well
  float* master = nullptr;             // as in AdamWTensor
  Scalar param_type = Scalar::F32;
  Scalar grad_type = Scalar::F32;
  uint64_t tensor_id = 0;
};

// Adafactor (Shazeer & Stern 2018) as torch.optim.Adafactor computes it, one tensor a call. The
// second moment V of a matrix (R, C) is kept as a mean per row and one per column, that of a vector
// whole:
//   w = t^beta2_decay;  row += (mean over columns of g^2 - row) * w;  column likewise
//   V = row * column / max(mean(row), eps1);  u = g / sqrt(max(V, eps1^2))
//   p *= 1 - lr * weight_decay
//   p -= max(eps2, rms(p)) * min(lr, 1 / sqrt(t)) / max(1, rms(u) / d) * u
// float32 inside, norms in double. Three sweeps, as rms(u) must be known before the update: 24
// bytes a float32 parameter.
struct AdafactorTensor {
  int64_t count = 0;  // rows * cols
  int64_t rows = 0;   // 1 for a vector
  int64_t cols = 0;
  void* param = nullptr;
  const void* grad = nullptr;
  float* row_var = nullptr;  // (R), null for a vector
  float* col_var = nullptr;  // (C); a vector's whole second moment
  float* master = nullptr;   // as in AdamWTensor
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
  bool stochastic_rounding = false;  // as in AdamWOptions
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

// Sum of squares over a list of tensors, in double: one sweep gives the gradients' norm and tells
// whether any element is infinite or NaN (squares of float32 values cannot overflow a double).
// Fixed blocks are added in order, so that every thread count gives the same bits.
struct TensorView {
  int64_t count = 0;
  const void* data = nullptr;
  Scalar type = Scalar::F32;
};

struct SumOfSquares {
  double value = 0.0;  // infinite or NaN when not finite
  bool finite = true;
};

namespace cpu {
void adamw_step(std::span<const AdamWTensor> tensors, const AdamWOptions& options);
void adamw_8bit_step(std::span<const AdamW8bitTensor> tensors, const AdamWOptions& options);
void adafactor_step(const AdafactorTensor& tensor, const AdafactorOptions& options,
                    void* workspace);
SumOfSquares sum_of_squares(std::span<const TensorView> tensors, int num_threads = 0);
}  // namespace cpu

}  // namespace snug::kernels
