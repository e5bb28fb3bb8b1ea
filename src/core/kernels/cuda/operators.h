// What the operators of a model launch on the device, beside the files of those names in
// kernels/cpu, which have the formulas and the arguments.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/kernels/cpu/activation.h"
#include "core/kernels/cpu/cross_entropy.h"
#include "core/kernels/cpu/dropout.h"
#include "core/kernels/cpu/embedding.h"
#include "core/kernels/cpu/layer_norm.h"
#include "core/kernels/cpu/pictures.h"
#include "core/kernels/cpu/quantized.h"
#include "core/kernels/cpu/rms_norm.h"
#include "core/kernels/cpu/rope.h"
#include "core/kernels/cuda/launch.h"

namespace snug::kernels::cuda {

// ReLU, SiLU and GELU, plain and gated.
void activation_forward(const cpu::ActivationForward& args, cudaStream_t stream);
void activation_backward(const cpu::ActivationBackward& args, cudaStream_t stream);
void gated_forward(const cpu::GatedForward& args, cudaStream_t stream);
void gated_backward(const cpu::GatedBackward& args, cudaStream_t stream);

// Cross-entropy: targets lie in device memory; one outside the vocabulary gives a loss of NaN. The
// totals, on the device, are added to: set to 0 before a step's first call, read back at the log
// interval.
struct CrossEntropyTotals {
  double loss_sum;
  int64_t count;
};

int64_t cross_entropy_workspace_bytes(const cpu::CrossEntropy& args);
void cross_entropy(const cpu::CrossEntropy& args, CrossEntropyTotals* totals, void* workspace,
                   cudaStream_t stream);

// The two sweeps over a part of the vocabulary. Sums lie in device memory; the logits are read
// again by the second, so that no scratch goes between them. Workspace as above.
void cross_entropy_part_sums(const cpu::CrossEntropy& args, cpu::CrossEntropyPartSums* sums,
                             cudaStream_t stream);
void cross_entropy_of_parts(const cpu::CrossEntropy& args, const cpu::CrossEntropyPartSums* sums,
                            int64_t num_parts, CrossEntropyTotals* totals, void* workspace,
                            cudaStream_t stream);

// Elements [begin, begin + count) of a quantized weight, row by row, as numbers; see
// DequantizeOnDevice, and for the formats core/kernels/cpu/linalg/quantized_matrix.h.
void dequantize(const cpu::DequantizeOnDevice& args, cudaStream_t stream);

// With the mask that the CPU draws.
void dropout(const cpu::Dropout& args, cudaStream_t stream);

// Ids lie in device memory and are trusted to be inside the table. (The forward of a whole table is
// libtorch's index_select.)
void embedding_forward(const cpu::EmbeddingForward& args, cudaStream_t stream);

// 256-byte aligned scratch for the sorted ids and for sums of ids that occur often.
int64_t embedding_backward_workspace_bytes(const cpu::EmbeddingBackward& args);
void embedding_backward(const cpu::EmbeddingBackward& args, void* workspace, cudaStream_t stream);

void layer_norm_forward(const cpu::LayerNormForward& args, cudaStream_t stream);

// Scratch for the shares of dweight and dbias; 0 where neither is wanted.
int64_t layer_norm_backward_workspace_bytes(const cpu::LayerNormBackward& args);
void layer_norm_backward(const cpu::LayerNormBackward& args, void* workspace, cudaStream_t stream);

void image_patches(const cpu::ImagePatches& args, cudaStream_t stream);

void rms_norm_forward(const cpu::RmsNormForward& args, cudaStream_t stream);

// Scratch for the shares of dweight; 0 where args.dweight is null.
int64_t rms_norm_backward_workspace_bytes(const cpu::RmsNormBackward& args);
void rms_norm_backward(const cpu::RmsNormBackward& args, void* workspace, cudaStream_t stream);

// Positions lie in device memory and are trusted to be inside the table.
void rope_apply(const cpu::RopeApply& args, cudaStream_t stream);

}  // namespace snug::kernels::cuda
