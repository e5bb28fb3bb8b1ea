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

void rms_norm_forward(const kernels::RmsNormForward& /*args*/) { absent(); }
int64_t rms_norm_backward_workspace_bytes(int64_t dim) { return 256 * dim * 4; }
void rms_norm_backward(const kernels::RmsNormBackward& /*args*/, void* /*workspace*/) { absent(); }
void layer_norm_forward(const kernels::LayerNormForward& /*args*/) { absent(); }
int64_t layer_norm_backward_workspace_bytes(int64_t dim, int gradients) {
  return gradients * 256 * dim * 4;
}
void layer_norm_backward(const kernels::LayerNormBackward& /*args*/, void* /*workspace*/) {
  absent();
}
void rope_apply(const kernels::RopeApply& /*args*/) { absent(); }
void activation_forward(const kernels::ActivationForward& /*args*/) { absent(); }
void activation_backward(const kernels::ActivationBackward& /*args*/) { absent(); }
void gated_forward(const kernels::GatedForward& /*args*/) { absent(); }
void gated_backward(const kernels::GatedBackward& /*args*/) { absent(); }
void embedding_forward(const kernels::EmbeddingForward& /*args*/) { absent(); }
int64_t embedding_backward_workspace_bytes(int64_t tokens, int64_t dim) {
  return kernels::cuda::embedding_scratch_bytes(tokens, dim);
}
void embedding_backward(const kernels::EmbeddingBackward& /*args*/, void* /*workspace*/) {
  absent();
}
int64_t cross_entropy_workspace_bytes(int64_t rows) { return rows * 8; }
void cross_entropy(const kernels::CrossEntropy& /*args*/, double* /*totals*/, void* /*workspace*/) {
  absent();
}
void cross_entropy_part_sums(const kernels::CrossEntropy& /*args*/,
                             kernels::CrossEntropyPartSums* /*sums*/) {
  absent();
}
void cross_entropy_of_parts(const kernels::CrossEntropy& /*args*/,
                            const kernels::CrossEntropyPartSums* /*sums*/, int64_t /*num_parts*/,
                            double* /*totals*/, void* /*workspace*/) {
  absent();
}
void image_patches(const kernels::ImagePatches& /*args*/) { absent(); }
void dropout(const kernels::Dropout& /*args*/) { absent(); }
int64_t sum_of_squares_workspace_bytes(std::span<const kernels::TensorView> tensors) {
  constexpr int64_t kListBlock = 16384;
  int64_t blocks = 0;
  for (const kernels::TensorView& t : tensors) blocks += (t.count + kListBlock - 1) / kListBlock;
  return blocks * 8;
}
void sum_of_squares(std::span<const kernels::TensorView> /*tensors*/, double* /*sum*/,
                    void* /*workspace*/) {
  absent();
}
void dequantize(const kernels::DequantizeOnDevice& /*args*/) { absent(); }
void adamw_step(std::span<const kernels::AdamWTensor> /*tensors*/,
                const kernels::AdamWOptions& /*options*/) {
  absent();
}
void adamw_8bit_step(std::span<const kernels::AdamW8bitTensor> /*tensors*/,
                     const kernels::AdamWOptions& /*options*/) {
  absent();
}
void lion_step(std::span<const kernels::LionTensor> /*tensors*/,
               const kernels::LionOptions& /*options*/) {
  absent();
}
void adafactor_step(const kernels::AdafactorTensor& /*tensor*/,
                    const kernels::AdafactorOptions& /*options*/, void* /*workspace*/) {
  absent();
}
void sgd_step(std::span<const kernels::SgdTensor> /*tensors*/,
              const kernels::SgdOptions& /*options*/) {
  absent();
}
bool has_flash_attention() { return true; }

}  // namespace snug::ops::cuda
