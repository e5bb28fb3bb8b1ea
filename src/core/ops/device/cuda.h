// The CUDA kernels as operators call them: on the current stream and device, with scratch memory
// from the caller. Argument structs are shared with the CPU kernels. In a build without CUDA every
// call throws: cuda_stub.cpp.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "core/kernels/activation.h"
#include "core/kernels/attention_scores.h"
#include "core/kernels/cpu/quantized.h"
#include "core/kernels/cross_entropy.h"
#include "core/kernels/delta_rule.h"
#include "core/kernels/dropout.h"
#include "core/kernels/embedding.h"
#include "core/kernels/heads.h"
#include "core/kernels/layer_norm.h"
#include "core/kernels/optimizers.h"
#include "core/kernels/pictures.h"
#include "core/kernels/rms_norm.h"
#include "core/kernels/rope.h"
#include "core/kernels/short_conv.h"
#include "core/kernels/sum_of_rows.h"

namespace snug::ops::cuda {

void rms_norm_forward(const kernels::RmsNormForward& args);
int64_t rms_norm_backward_workspace_bytes(int64_t dim);  // if the weight is trained
void rms_norm_backward(const kernels::RmsNormBackward& args, void* workspace);

void layer_norm_forward(const kernels::LayerNormForward& args);
// `gradients`: number of gradients needed (weight, bias).
int64_t layer_norm_backward_workspace_bytes(int64_t dim, int gradients);
void layer_norm_backward(const kernels::LayerNormBackward& args, void* workspace);

void rope_apply(const kernels::RopeApply& args);

void short_conv_forward(const kernels::ShortConvForward& args);
// `sums`: gradients needed of each feature, those of its taps and of its bias.
int64_t short_conv_backward_workspace_bytes(int64_t features, int64_t sums);
void short_conv_backward(const kernels::ShortConvBackward& args, void* workspace);

void sum_of_rows(const kernels::SumOfRows& args);

void move_head_rows(const kernels::HeadRows& args);
void change_head_widths(const kernels::HeadWidths& args);

void activation_forward(const kernels::ActivationForward& args);
void activation_backward(const kernels::ActivationBackward& args);
void gated_forward(const kernels::GatedForward& args);
void gated_backward(const kernels::GatedBackward& args);

void embedding_forward(const kernels::EmbeddingForward& args);
int64_t embedding_backward_workspace_bytes(int64_t tokens, int64_t dim);
void embedding_backward(const kernels::EmbeddingBackward& args, void* workspace);

void teachers_logits(const kernels::CrossEntropy& args, float* out);
int64_t cross_entropy_workspace_bytes(int64_t rows);
// totals: two doubles on the device, to which the summed loss and the number of counted rows are
// added.
inline constexpr int64_t kCrossEntropyTotals = 2;
void cross_entropy(const kernels::CrossEntropy& args, double* totals, void* workspace);
void cross_entropy_part_sums(const kernels::CrossEntropy& args,
                             kernels::CrossEntropyPartSums* sums);
void cross_entropy_of_parts(const kernels::CrossEntropy& args,
                            const kernels::CrossEntropyPartSums* sums, int64_t num_parts,
                            double* totals, void* workspace);

void attention_softmax(const kernels::AttentionScores& args);
void attention_probabilities(const kernels::AttentionScores& args, float* out);
void attention_scores_backward(const kernels::AttentionScores& args, const float* arriving,
                               const float* delta);
void attention_bias_backward(const kernels::AttentionScores& args, float* sums);

void image_patches(const kernels::ImagePatches& args);

int64_t delta_rule_forward_workspace_bytes(const kernels::DeltaRuleSizes& sizes);
int64_t delta_rule_backward_workspace_bytes(const kernels::DeltaRuleSizes& sizes);
void delta_rule_forward(const kernels::DeltaRuleForward& args, void* workspace);
void delta_rule_backward(const kernels::DeltaRuleBackward& args, void* workspace);
void delta_rule_step(const kernels::DeltaRuleStep& args);

void dropout(const kernels::Dropout& args);

int64_t sum_of_squares_workspace_bytes(std::span<const kernels::TensorView> tensors);
// sum: one double on the device.
void sum_of_squares(std::span<const kernels::TensorView> tensors, double* sum, void* workspace);

void dequantize(const kernels::DequantizeOnDevice& args);

void adamw_step(std::span<const kernels::AdamWTensor> tensors,
                const kernels::AdamWOptions& options);
void adamw_8bit_step(std::span<const kernels::AdamW8bitTensor> tensors,
                     const kernels::AdamWOptions& options);
// Of those in kernels/optimizers/all.def.
template <class Formula>
void element_step(std::span<const kernels::ElementTensor<Formula::kStates>> tensors,
                  const kernels::ElementOptions& options);
#define SNUG_ELEMENT_WISE(Formula)                                        \
  template <>                                                             \
  void element_step<kernels::Formula>(                                    \
      std::span<const kernels::ElementTensor<kernels::Formula::kStates>>, \
      const kernels::ElementOptions&);
#include "core/kernels/optimizers/all.def"
#undef SNUG_ELEMENT_WISE
void adafactor_step(const kernels::AdafactorTensor& tensor,
                    const kernels::AdafactorOptions& options, void* workspace);

// ---- Recorded work (recording.h), as CUDA graphs

// Makes a stream of its own the current one of this thread, once the device has done all before,
// where the default one is.
void use_own_stream();
// From here on what is queued on the current stream is recorded, and memory for it comes from a
// pool that all recordings share.
void begin_recording();
void* end_recording();  // a graph
void stop_recording();  // after an error
void launch_graph(void* graph);
void destroy_graph(void* graph);
// Once for each begin_recording(): with the last one the pool's memory may be given back.
void release_recorded_memory();

// Whether libtorch's flash attention runs on the current device (Ampere or newer); true without a
// device.
bool has_flash_attention();

}  // namespace snug::ops::cuda
