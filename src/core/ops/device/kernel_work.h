// What each call of cuda.h does, from its arguments: see Work.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "core/kernels/activation.h"
#include "core/kernels/attention_scores.h"
#include "core/kernels/cross_entropy.h"
#include "core/kernels/delta_rule.h"
#include "core/kernels/dropout.h"
#include "core/kernels/embedding.h"
#include "core/kernels/heads.h"
#include "core/kernels/layer_norm.h"
#include "core/kernels/optimizers.h"
#include "core/kernels/pictures.h"
#include "core/kernels/quantized_matrix.h"
#include "core/kernels/rms_norm.h"
#include "core/kernels/rope.h"
#include "core/kernels/short_conv.h"
#include "core/kernels/sum_of_rows.h"
#include "core/ops/device/work.h"

namespace snug::ops {

Work kernel_work(const kernels::RmsNormForward& a);
Work kernel_work(const kernels::RmsNormBackward& a);
Work kernel_work(const kernels::LayerNormForward& a);
Work kernel_work(const kernels::LayerNormBackward& a);
Work kernel_work(const kernels::RopeApply& a);
Work kernel_work(const kernels::ShortConvForward& a);
Work kernel_work(const kernels::ShortConvBackward& a);
Work kernel_work(const kernels::SumOfRows& a);
Work kernel_work(const kernels::HeadRows& a);
Work kernel_work(const kernels::HeadWidths& a);
Work kernel_work(const kernels::ActivationForward& a);
Work kernel_work(const kernels::ActivationBackward& a);
Work kernel_work(const kernels::GatedForward& a);
Work kernel_work(const kernels::GatedBackward& a);
Work kernel_work(const kernels::EmbeddingForward& a);
Work kernel_work(const kernels::EmbeddingBackward& a);
// In one sweep, or of parts of the vocabulary in two; before them a teacher's tokens are looked up.
Work kernel_work(const kernels::CrossEntropy& a);
enum class Sweep { TeachersLogits, PartSums, OfParts };
Work kernel_work(const kernels::CrossEntropy& a, Sweep sweep);
enum class ScoreSweep { Softmax, Probabilities, Backward, BiasBackward };
Work kernel_work(const kernels::AttentionScores& a, ScoreSweep sweep);
Work kernel_work(const kernels::ImagePatches& a);
Work kernel_work(const kernels::DeltaRuleForward& a);
Work kernel_work(const kernels::DeltaRuleBackward& a);
Work kernel_work(const kernels::DeltaRuleStep& a);
Work kernel_work(const kernels::Dropout& a);
Work kernel_work(const kernels::DequantizeOnDevice& a);
Work kernel_work(std::span<const kernels::TensorView> tensors);
Work kernel_work(std::span<const kernels::AdamWTensor> tensors);
Work kernel_work(std::span<const kernels::AdamW8bitTensor> tensors);
template <int N>
Work kernel_work(std::span<const kernels::ElementTensor<N>> tensors, const char* name);
Work kernel_work(const kernels::AdafactorTensor& tensor);

}  // namespace snug::ops
