// The vectorised inner parts of the operators. Each is compiled once per instruction set, into the
// namespaces portable, avx2 and avx512; SNUG_FOR_ISA picks one. They neither allocate nor throw nor
// start threads: the operator's own file does the checking and the sharing out. Each copies its
// arguments before its loop: a vector store may alias whatever a reference names, and every pointer
// and factor would be loaded again at each step.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/kernels/activation.h"
#include "core/kernels/cpu/elementwise.h"
#include "core/kernels/cpu/four_bit_coder.h"
#include "core/kernels/cross_entropy.h"
#include "core/kernels/delta_rule.h"
#include "core/kernels/dropout.h"
#include "core/kernels/dynamic_map.h"
#include "core/kernels/embedding.h"
#include "core/kernels/layer_norm.h"
#include "core/kernels/optimizers.h"
#include "core/kernels/rms_norm.h"
#include "core/kernels/rope.h"
#include "core/kernels/short_conv.h"

#define SNUG_PER_ISA(...) \
  namespace portable {    \
  __VA_ARGS__;            \
  }                       \
  namespace avx2 {        \
  __VA_ARGS__;            \
  }                       \
  namespace avx512 {      \
  __VA_ARGS__;            \
  }

namespace snug::kernels::cpu {

// `weight` is float32, with Gemma's 1 already added. `dweight` (D) is added to, or null.
SNUG_PER_ISA(void rms_norm_forward_rows(const RmsNormForward& args, const float* weight,
                                        int64_t begin, int64_t end))
SNUG_PER_ISA(void rms_norm_backward_rows(const RmsNormBackward& args, const float* weight,
                                         float* dweight, int64_t begin, int64_t end))

// `weight` and `bias` are float32. `dweight` and `dbias` (D) are added to, or null.
SNUG_PER_ISA(void layer_norm_forward_rows(const LayerNormForward& args, const float* weight,
                                          const float* bias, int64_t begin, int64_t end))
SNUG_PER_ISA(void layer_norm_backward_rows(const LayerNormBackward& args, const float* weight,
                                           float* dweight, float* dbias, int64_t begin,
                                           int64_t end))

// float32: taps (K, F), a row's own first; bias (F) or null.
struct ShortConvWeights {
  const float* taps = nullptr;
  const float* bias = nullptr;
};
SNUG_PER_ISA(void short_conv_forward_rows(const ShortConvForward& args,
                                          const ShortConvWeights& weights, int64_t begin,
                                          int64_t end))
// Adds to `shares`, of the taps (K, F) and then of the bias (F), or null.
SNUG_PER_ISA(void short_conv_backward_rows(const ShortConvBackward& args,
                                           const ShortConvWeights& weights, float* shares,
                                           int64_t begin, int64_t end))

SNUG_PER_ISA(void rope_apply_tokens(const RopeApply& args, int64_t begin, int64_t end))

SNUG_PER_ISA(void activation_forward_range(const ActivationForward& args, int64_t begin,
                                           int64_t end))
SNUG_PER_ISA(void activation_backward_range(const ActivationBackward& args, int64_t begin,
                                            int64_t end))
SNUG_PER_ISA(void gated_forward_rows(const GatedForward& args, int64_t begin, int64_t end))
SNUG_PER_ISA(void gated_backward_rows(const GatedBackward& args, int64_t begin, int64_t end))

SNUG_PER_ISA(void dropout_range(const Dropout& args, int64_t begin, int64_t end))

// The row's loss; its gradient where args ask for it. A row whose target is ignored: 0.
SNUG_PER_ISA(double cross_entropy_row(const CrossEntropy& args, int64_t row))
// The two sweeps over a part of a row. `maxima` (kMaxStretches) go from the first to the second.
inline constexpr int64_t kMaxStretches = 128;
SNUG_PER_ISA(CrossEntropyPartSums cross_entropy_part_row(const CrossEntropy& args, int64_t row,
                                                         float* maxima))
SNUG_PER_ISA(double cross_entropy_whole_row(const CrossEntropy& args, int64_t row,
                                            const CrossEntropyPartSums& whole, const float* maxima))

// grad[id] += the sum of dy over `tokens`, all of which have that id.
SNUG_PER_ISA(void embedding_backward_row(const EmbeddingBackward& args, int64_t id,
                                         const int32_t* tokens, int64_t num_tokens))

// Sum of squares of elements [begin, end).
SNUG_PER_ISA(double sum_of_squares_range(const TensorView& tensor, int64_t begin, int64_t end))

SNUG_PER_ISA(void adamw_range(const AdamWTensor& tensor, const AdamWFactors& factors, int64_t begin,
                              int64_t end))

// `begin` is the start of a block of 256.
SNUG_PER_ISA(void adamw_8bit_range(const AdamW8bitTensor& tensor, const AdamWFactors& factors,
                                   const DynamicMap& first_map, const DynamicMap& second_map,
                                   int64_t begin, int64_t end))

#define SNUG_ELEMENT_WISE(Formula)                                                         \
  SNUG_PER_ISA(void Formula##_range(const ElementTensor<Formula::kStates>& tensor,         \
                                    const ElementFactors<Formula>& factors, int64_t begin, \
                                    int64_t end))
#include "core/kernels/optimizers/all.def"
#undef SNUG_ELEMENT_WISE

struct AdafactorFactors {
  float new_share = 1;  // of the squared gradients in the second moment
  float row_scale = 1;  // makes row_var * col_var the second moment
  float smallest = 0;   // second moment at least
  float decay = 1;      // 1 - lr * weight_decay
  float step_size = 0;  // of the normalised gradient
  float grad_scale = 1;
  bool stochastic = false;
  uint64_t random_key = 0;
};
// Adds the squared gradients of rows [begin, end) to col_sums (cols), moves row_var towards their
// means, and returns the weights' sum of squares.
SNUG_PER_ISA(double adafactor_moments_rows(const AdafactorTensor& tensor,
                                           const AdafactorFactors& factors, float* col_sums,
                                           int64_t begin, int64_t end))
// Sum of squares of the normalised gradients.
SNUG_PER_ISA(double adafactor_update_norm_rows(const AdafactorTensor& tensor,
                                               const AdafactorFactors& factors, int64_t begin,
                                               int64_t end))
SNUG_PER_ISA(void adafactor_update_rows(const AdafactorTensor& tensor,
                                        const AdafactorFactors& factors, int64_t begin,
                                        int64_t end))

// Blocks of 64 elements: 32 bytes of codes and a scale each.
struct FourBitBlocks {
  const void* elements = nullptr;
  Scalar type = Scalar::F32;
  const FourBitCoder* coder = nullptr;
  uint8_t* codes = nullptr;
  float* scales = nullptr;
};
SNUG_PER_ISA(void quantize_4bit_blocks(const FourBitBlocks& args, int64_t begin, int64_t end))

struct Int8Rows {
  const void* elements = nullptr;
  Scalar type = Scalar::F32;
  int64_t cols = 0;
  int8_t* codes = nullptr;
  float* scales = nullptr;
};
SNUG_PER_ISA(void quantize_int8_rows(const Int8Rows& args, int64_t begin, int64_t end))

SNUG_PER_ISA(void cast_range(const void* from, Scalar from_type, void* to, Scalar to_type,
                             int64_t begin, int64_t end))
SNUG_PER_ISA(void add_range(const void* a, const void* b, void* c, Scalar type, int64_t begin,
                            int64_t end))
SNUG_PER_ISA(void accumulate_range(void* y, Scalar y_type, const void* x, Scalar x_type,
                                   float alpha, int64_t begin, int64_t end))
SNUG_PER_ISA(void scale_range(void* x, Scalar type, float factor, int64_t begin, int64_t end))
SNUG_PER_ISA(void fill_range(void* x, Scalar type, float value, int64_t begin, int64_t end))

// --- The gated delta rule, within a chunk; the names are those of core/kernels/delta_rule.h.

// Rows of `dim` elements, `stride` apart.
struct TypedRows {
  const void* data = nullptr;
  Scalar type = Scalar::F32;
  int64_t stride = 0, rows = 0, dim = 0;
};
// Floats in panels of `width` columns, as a product's right operand: (i, j) lies at
// data[(j / width * height + i) * width + j % width]. A row's last panel is filled up with zeros.
struct ColumnPanels {
  float* data = nullptr;
  int64_t height = 0, width = 0;
  int64_t cols = 0;
};
// A square of a chunk's scores has rows of `stride` floats, a multiple of 16. Beside the triangle
// that a function writes it writes zeros.
struct ScoreSquare {
  float* data = nullptr;
  int64_t stride = 0;
};

// out = factor * x / sqrt(sum(x²) + kDeltaRuleEps), row by row.
SNUG_PER_ISA(void delta_unit_rows(const TypedRows& x, float factor, float* out, int64_t out_stride))
// The gradient of that: dx (rows, dim) of x's type, `dx_stride` apart.
SNUG_PER_ISA(void delta_unit_rows_backward(const TypedRows& x, float factor, const float* d_out,
                                           int64_t d_out_stride, void* dx, int64_t dx_stride))

// Running sums b of log decays in two parts, since they may be large and their differences small.
struct DeltaSums {
  const float *high = nullptr, *low = nullptr;
  int64_t count = 0;
};
// D, exp(b) and exp(B - b).
SNUG_PER_ISA(void delta_decays(const DeltaSums& sums, const ScoreSquare& decay, float* from_start,
                               float* to_end))
// out = D * scores for j <= i, or for j < i. What `scores` has beyond is not read as a number.
enum class Triangle { WithDiagonal, Strict };
SNUG_PER_ISA(void delta_decay_scores(const ScoreSquare& decay, const ScoreSquare& scores,
                                     Triangle triangle, int64_t rows, const ScoreSquare& out))
// Y = X - X (beta Y)
SNUG_PER_ISA(void delta_substitute(const ScoreSquare& x, const float* beta, int64_t rows,
                                   const ScoreSquare& y))
// dP = D * dP, dX = D * dX, and P * dP + X * dX (of the old ones, below the diagonal) added to db
// by rows and taken from it by columns. `columns` has room for a row of scores. Without X, x.data
// is null.
struct DeltaScoreGradients {
  ScoreSquare decay, p, x, dp, dx;
  int64_t rows = 0;
  float* columns = nullptr;
  float* db = nullptr;
};
SNUG_PER_ISA(void delta_score_gradients(const DeltaScoreGradients& args))

SNUG_PER_ISA(void delta_load_rows(const TypedRows& x, const ColumnPanels& out))
// x = v - factors * x
SNUG_PER_ISA(void delta_residual(const TypedRows& v, const float* factors, const ColumnPanels& x))
// out = factors * x; out may be x
SNUG_PER_ISA(void delta_scale_rows(const float* factors, const ColumnPanels& x, int64_t rows,
                                   const ColumnPanels& out))
// sums += factor * x
SNUG_PER_ISA(void delta_add_panels(float factor, const ColumnPanels& x, int64_t rows,
                                   const ColumnPanels& sums))
// out[i] = x_i · y_i
SNUG_PER_ISA(void delta_dot_rows(const ColumnPanels& x, const ColumnPanels& y, int64_t rows,
                                 float* out))
// sums += factors * x, and dots[i] = factors[i] (x_i · y_i), for rows of `dim` floats.
struct DeltaRowSums {
  const float *x = nullptr, *y = nullptr;
  float* sums = nullptr;
  int64_t stride = 0, rows = 0, dim = 0;  // the stride is that of all three
  const float* factors = nullptr;
  float* dots = nullptr;
};
SNUG_PER_ISA(void delta_add_rows(const DeltaRowSums& args))

// One value head of one sequence: `room` is for for 2 dk + 2 dv floats.
SNUG_PER_ISA(void delta_step_head(const DeltaRuleStep& args, int64_t sequence, int64_t head,
                                  float* room))

}  // namespace snug::kernels::cpu
