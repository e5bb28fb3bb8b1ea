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

}  // namespace snug::kernels::cpu
