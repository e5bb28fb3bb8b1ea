// The CUDA kernels as operators call them: on the current stream and device, with scratch memory
// from the caller. Argument structs are shared with the CPU kernels. In a build without CUDA every
// call throws: cuda_stub.cpp.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "core/kernels/cpu/activation.h"
#include "core/kernels/cpu/cross_entropy.h"
#include "core/kernels/cpu/dropout.h"
#include "core/kernels/cpu/embedding.h"
#include "core/kernels/cpu/layer_norm.h"
#include "core/kernels/cpu/optimizers/adafactor.h"
#include "core/kernels/cpu/optimizers/adamw.h"
#include "core/kernels/cpu/optimizers/adamw_8bit.h"
#include "core/kernels/cpu/optimizers/global_norm.h"
#include "core/kernels/cpu/optimizers/lion.h"
#include "core/kernels/cpu/optimizers/sgd.h"
#include "core/kernels/cpu/pictures.h"
#include "core/kernels/cpu/quantized.h"
#include "core/kernels/cpu/rms_norm.h"
#include "core/kernels/cpu/rope.h"

namespace snug::ops::cuda {

void rms_norm_forward(const kernels::cpu::RmsNormForward& args);
int64_t rms_norm_backward_workspace_bytes(int64_t dim);  // if the weight is trained
void rms_norm_backward(const kernels::cpu::RmsNormBackward& args, void* workspace);

void layer_norm_forward(const kernels::cpu::LayerNormForward& args);
// `gradients`: number of gradients needed (weight, bias).
int64_t layer_norm_backward_workspace_bytes(int64_t dim, int gradients);
void layer_norm_backward(const kernels::cpu::LayerNormBackward& args, void* workspace);

void rope_apply(const kernels::cpu::RopeApply& args);

void activation_forward(const kernels::cpu::ActivationForward& args);
void activation_backward(const kernels::cpu::ActivationBackward& args);
void gated_forward(const kernels::cpu::GatedForward& args);
void gated_backward(const kernels::cpu::GatedBackward& args);

void embedding_forward(const kernels::cpu::EmbeddingForward& args);
int64_t embedding_backward_workspace_bytes(int64_t tokens, int64_t dim);
void embedding_backward(const kernels::cpu::EmbeddingBackward& args, void* workspace);

int64_t cross_entropy_workspace_bytes(int64_t rows);
// totals: two doubles on the device, to which the summed loss and the number of counted rows are
// added.
inline constexpr int64_t kCrossEntropyTotals = 2;
void cross_entropy(const kernels::cpu::CrossEntropy& args, double* totals, void* workspace);
void cross_entropy_part_sums(const kernels::cpu::CrossEntropy& args,
                             kernels::cpu::CrossEntropyPartSums* sums);
void cross_entropy_of_parts(const kernels::cpu::CrossEntropy& args,
                            const kernels::cpu::CrossEntropyPartSums* sums, int64_t num_parts,
                            double* totals, void* workspace);

void image_patches(const kernels::cpu::ImagePatches& args);

void dropout(const kernels::cpu::Dropout& args);

int64_t sum_of_squares_workspace_bytes(std::span<const kernels::cpu::TensorView> tensors);
// sum: one double on the device.
void sum_of_squares(std::span<const kernels::cpu::TensorView> tensors, double* sum,
                    void* workspace);

void dequantize(const kernels::cpu::DequantizeOnDevice& args);

void adamw_step(std::span<const kernels::cpu::AdamWTensor> tensors,
                const kernels::cpu::AdamWOptions& options);
void adamw_8bit_step(std::span<const kernels::cpu::AdamW8bitTensor> tensors,
                     const kernels::cpu::AdamWOptions& options);
void lion_step(std::span<const kernels::cpu::LionTensor> tensors,
               const kernels::cpu::LionOptions& options);
void adafactor_step(const kernels::cpu::AdafactorTensor& tensor,
                    const kernels::cpu::AdafactorOptions& options, void* workspace);
void sgd_step(std::span<const kernels::cpu::SgdTensor> tensors,
              const kernels::cpu::SgdOptions& options);

// Whether libtorch's flash attention runs on the current device (Ampere or newer); true without a
// device.
bool has_flash_attention();

}  // namespace snug::ops::cuda
