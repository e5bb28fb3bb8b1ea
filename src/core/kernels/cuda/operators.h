// What the operators of a model launch on the device, beside the files of those names in
// kernels/cpu, which have the formulas and the arguments.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/kernels/activation.h"
#include "core/kernels/attention_scores.h"
#include "core/kernels/cpu/quantized.h"
#include "core/kernels/cross_entropy.h"
#include "core/kernels/cuda/launch.h"
#include "core/kernels/delta_rule.h"
#include "core/kernels/dropout.h"
#include "core/kernels/embedding.h"
#include "core/kernels/heads.h"
#include "core/kernels/layer_norm.h"
#include "core/kernels/pictures.h"
#include "core/kernels/rms_norm.h"
#include "core/kernels/rope.h"
#include "core/kernels/short_conv.h"
#include "core/kernels/sum_of_rows.h"

namespace snug::kernels::cuda {

// ReLU, SiLU and GELU, plain and gated.
void activation_forward(const ActivationForward& args, cudaStream_t stream);
void activation_backward(const ActivationBackward& args, cudaStream_t stream);
void gated_forward(const GatedForward& args, cudaStream_t stream);
void gated_backward(const GatedBackward& args, cudaStream_t stream);

// The sweeps between attention's products.
void attention_softmax(const AttentionScores& args, cudaStream_t stream);
void attention_probabilities(const AttentionScores& args, float* out, cudaStream_t stream);
void attention_scores_backward(const AttentionScores& args, const float* arriving,
                               const float* delta, cudaStream_t stream);
void attention_bias_backward(const AttentionScores& args, float* sums, cudaStream_t stream);

// Cross-entropy: targets lie in device memory; one outside the vocabulary gives a loss of NaN. The
// totals, on the device, are added to: set to 0 before a step's first call, read back at the log
// interval.
struct CrossEntropyTotals {
  double loss_sum;
  int64_t count;
};

void teachers_logits(const CrossEntropy& args, float* out, cudaStream_t stream);
int64_t cross_entropy_workspace_bytes(const CrossEntropy& args);
void cross_entropy(const CrossEntropy& args, CrossEntropyTotals* totals, void* workspace,
                   cudaStream_t stream);

// The two sweeps over a part of the vocabulary. Sums lie in device memory; the logits are read
// again by the second, so that no scratch goes between them. Workspace as above.
void cross_entropy_part_sums(const CrossEntropy& args, CrossEntropyPartSums* sums,
                             cudaStream_t stream);
void cross_entropy_of_parts(const CrossEntropy& args, const CrossEntropyPartSums* sums,
                            int64_t num_parts, CrossEntropyTotals* totals, void* workspace,
                            cudaStream_t stream);

// Borders lie in device memory; keys have 256 elements at most. Scratch is linear in tokens: in the
// backward that of every chunk's state and its gradient, in the forward a chunk's scores.
int64_t delta_rule_forward_workspace_bytes(const DeltaRuleForward& args);
int64_t delta_rule_backward_workspace_bytes(const DeltaRuleForward& args);
void delta_rule_forward(const DeltaRuleForward& args, void* workspace, cudaStream_t stream);
void delta_rule_backward(const DeltaRuleBackward& args, void* workspace, cudaStream_t stream);
void delta_rule_step(const DeltaRuleStep& args, cudaStream_t stream);

// Elements [begin, begin + count) of a quantized weight, row by row, as numbers; see
// DequantizeOnDevice, and for the formats core/kernels/quantized_matrix.h.
void dequantize(const DequantizeOnDevice& args, cudaStream_t stream);

// With the mask that the CPU draws.
void dropout(const Dropout& args, cudaStream_t stream);

// Ids lie in device memory and are trusted to be inside the table. (The forward of a whole table is
// libtorch's index_select.)
void embedding_forward(const EmbeddingForward& args, cudaStream_t stream);

// 256-byte aligned scratch for the sorted ids and for sums of ids that occur often.
int64_t embedding_backward_workspace_bytes(const EmbeddingBackward& args);
void embedding_backward(const EmbeddingBackward& args, void* workspace, cudaStream_t stream);

void move_head_rows(const HeadRows& args, cudaStream_t stream);
void change_head_widths(const HeadWidths& args, cudaStream_t stream);

void layer_norm_forward(const LayerNormForward& args, cudaStream_t stream);

// Scratch for the shares of dweight and dbias; 0 where neither is wanted.
int64_t layer_norm_backward_workspace_bytes(const LayerNormBackward& args);
void layer_norm_backward(const LayerNormBackward& args, void* workspace, cudaStream_t stream);

void image_patches(const ImagePatches& args, cudaStream_t stream);

void rms_norm_forward(const RmsNormForward& args, cudaStream_t stream);

// Scratch for the shares of dweight; 0 where it is not wanted.
int64_t rms_norm_backward_workspace_bytes(const RmsNormBackward& args);
void rms_norm_backward(const RmsNormBackward& args, void* workspace, cudaStream_t stream);

// Positions lie in device memory and are trusted to be inside the table.
void rope_apply(const RopeApply& args, cudaStream_t stream);

void short_conv_forward(const ShortConvForward& args, cudaStream_t stream);

// Scratch for the shares of `sums` gradients of each feature: of its taps, of its bias.
int64_t short_conv_backward_workspace_bytes(int64_t features, int64_t sums);
void short_conv_backward(const ShortConvBackward& args, void* workspace, cudaStream_t stream);

void sum_of_rows(const SumOfRows& args, cudaStream_t stream);

}  // namespace snug::kernels::cuda
