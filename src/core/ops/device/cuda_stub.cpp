// For builds without CUDA. No tensor can be on such a device, so these functions throw; they are
// reached only by a bug or a recipe that requires CUDA. The scratch sizes are real, those of
// kernels/cuda, since a plan for a GPU can be made anywhere.
// SPDX-License-Identifier: Apache-2.0
#include "base/error.h"
#include "core/kernels/cuda/scratch.h"
#include "core/ops/device/cuda.h"

namespace snug::ops::cuda {
namespace {

[[noreturn]] void absent() {
  throw UserError(
      "this build has no CUDA; on a machine with an NVIDIA GPU run scripts/build again (or "
      "scripts/build --cuda anywhere), or choose --accelerator cpu");
}

}  // namespace

void rms_norm_forward(const kernels::cpu::RmsNormForward& /*args*/) { absent(); }
int64_t rms_norm_backward_workspace_bytes(int64_t dim) { return 256 * dim * 4; }
void rms_norm_backward(const kernels::cpu::RmsNormBackward& /*args*/, void* /*workspace*/) {
  absent();
}
void layer_norm_forward(const kernels::cpu::LayerNormForward& /*args*/) { absent(); }
int64_t layer_norm_backward_workspace_bytes(int64_t dim, int gradients) {
  return gradients * 256 * dim * 4;
}
void layer_norm_backward(const kernels::cpu::LayerNormBackward& /*args*/, void* /*workspace*/) {
  absent();
}
void rope_apply(const kernels::cpu::RopeApply& /*args*/) { absent(); }
void activation_forward(const kernels::cpu::ActivationForward& /*args*/) { absent(); }
void activation_backward(const kernels::cpu::ActivationBackward& /*args*/) { absent(); }
void gated_forward(const kernels::cpu::GatedForward& /*args*/) { absent(); }
void gated_backward(const kernels::cpu::GatedBackward& /*args*/) { absent(); }
void embedding_forward(const kernels::cpu::EmbeddingForward& /*args*/) { absent(); }
int64_t embedding_backward_workspace_bytes(int64_t tokens, int64_t dim) {
  return kernels::cuda::embedding_scratch_bytes(tokens, dim);
}
void embedding_backward(const kernels::cpu::EmbeddingBackward& /*args*/, void* /*workspace*/) {
  absent();
}
int64_t cross_entropy_workspace_bytes(int64_t rows) { return rows * 8; }
void cross_entropy(const kernels::cpu::CrossEntropy& /*args*/, double* /*totals*/,
                   void* /*workspace*/) {
  absent();
}
void cross_entropy_part_sums(const kernels::cpu::CrossEntropy& /*args*/,
                             kernels::cpu::CrossEntropyPartSums* /*sums*/) {
  absent();
}
void cross_entropy_of_parts(const kernels::cpu::CrossEntropy& /*args*/,
                            const kernels::cpu::CrossEntropyPartSums* /*sums*/,
                            int64_t /*num_parts*/, double* /*totals*/, void* /*workspace*/) {
  absent();
}
void image_patches(const kernels::cpu::ImagePatches& /*args*/) { absent(); }
void dropout(const kernels::cpu::Dropout& /*args*/) { absent(); }
int64_t sum_of_squares_workspace_bytes(std::span<const kernels::cpu::TensorView> tensors) {
  constexpr int64_t kListBlock = 16384;
  int64_t blocks = 0;
  for (const kernels::cpu::TensorView& t : tensors)
    blocks += (t.count + kListBlock - 1) / kListBlock;
  return blocks * 8;
}
void sum_of_squares(std::span<const kernels::cpu::TensorView> /*tensors*/, double* /*sum*/,
                    void* /*workspace*/) {
  absent();
}
void dequantize(const kernels::cpu::DequantizeOnDevice& /*args*/) { absent(); }
void adamw_step(std::span<const kernels::cpu::AdamWTensor> /*tensors*/,
                const kernels::cpu::AdamWOptions& /*options*/) {
  absent();
}
void adamw_8bit_step(std::span<const kernels::cpu::AdamW8bitTensor> /*tensors*/,
                     const kernels::cpu::AdamWOptions& /*options*/) {
  absent();
}
void lion_step(std::span<const kernels::cpu::LionTensor> /*tensors*/,
               const kernels::cpu::LionOptions& /*options*/) {
  absent();
}
void adafactor_step(const kernels::cpu::AdafactorTensor& /*tensor*/,
                    const kernels::cpu::AdafactorOptions& /*options*/, void* /*workspace*/) {
  absent();
}
void sgd_step(std::span<const kernels::cpu::SgdTensor> /*tensors*/,
              const kernels::cpu::SgdOptions& /*options*/) {
  absent();
}
bool has_flash_attention() { return true; }

}  // namespace snug::ops::cuda
