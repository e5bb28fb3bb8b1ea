// For builds without CUDA. No tensor can be on such a device, so these functions throw; they are
// reached only by a bug or a recipe that requires CUDA. The scratch sizes are real, those of
// kernels/cuda, since a plan for a GPU can be made anywhere.
// SPDX-License-Identifier: Apache-2.0
#include "base/error.h"
#include "core/kernels/cuda/delta_rule/layout.h"
#include "core/kernels/cuda/scratch.h"
#include "core/ops/device/cuda.h"
#include "core/ops/device/kernel_work.h"

namespace snug::ops::cuda {
namespace {

// Where work is counted there need be no device.
template <class... Args>
void absent(const Args&... args) {
  if (counts_work()) return note_work(kernel_work(args...));
  throw UserError(
      "this build has no CUDA; on a machine with an NVIDIA GPU run scripts/build again (or "
      "scripts/build --cuda anywhere), or choose --accelerator cpu");
}

}  // namespace

void use_own_stream() {}
void begin_recording() {}
void* end_recording() { return nullptr; }
void stop_recording() {}
void launch_graph(void* /*graph*/) {}
void destroy_graph(void* /*graph*/) {}
void release_recorded_memory() {}

void rms_norm_forward(const kernels::RmsNormForward& args) { absent(args); }
int64_t rms_norm_backward_workspace_bytes(int64_t dim) { return 256 * dim * 4; }
void rms_norm_backward(const kernels::RmsNormBackward& args, void* /*workspace*/) { absent(args); }
void layer_norm_forward(const kernels::LayerNormForward& args) { absent(args); }
int64_t layer_norm_backward_workspace_bytes(int64_t dim, int gradients) {
  return gradients * 256 * dim * 4;
}
void layer_norm_backward(const kernels::LayerNormBackward& args, void* /*workspace*/) {
  absent(args);
}
void rope_apply(const kernels::RopeApply& args) { absent(args); }
void short_conv_forward(const kernels::ShortConvForward& args) { absent(args); }
int64_t short_conv_backward_workspace_bytes(int64_t features, int64_t sums) {
  return 256 * sums * features * 4;
}
void short_conv_backward(const kernels::ShortConvBackward& args, void* /*workspace*/) {
  absent(args);
}
void sum_of_rows(const kernels::SumOfRows& args) { absent(args); }
void move_head_rows(const kernels::HeadRows& args) { absent(args); }
void change_head_widths(const kernels::HeadWidths& args) { absent(args); }
void activation_forward(const kernels::ActivationForward& args) { absent(args); }
void activation_backward(const kernels::ActivationBackward& args) { absent(args); }
void gated_forward(const kernels::GatedForward& args) { absent(args); }
void gated_backward(const kernels::GatedBackward& args) { absent(args); }
void embedding_forward(const kernels::EmbeddingForward& args) { absent(args); }
int64_t embedding_backward_workspace_bytes(int64_t tokens, int64_t dim) {
  return kernels::cuda::embedding_scratch_bytes(tokens, dim);
}
void embedding_backward(const kernels::EmbeddingBackward& args, void* /*workspace*/) {
  absent(args);
}
void teachers_logits(const kernels::CrossEntropy& args, float* /*out*/) {
  absent(args, Sweep::TeachersLogits);
}
int64_t cross_entropy_workspace_bytes(int64_t rows) { return rows * 8; }
void cross_entropy(const kernels::CrossEntropy& args, double* /*totals*/, void* /*workspace*/) {
  absent(args);
}
void cross_entropy_part_sums(const kernels::CrossEntropy& args,
                             kernels::CrossEntropyPartSums* /*sums*/) {
  absent(args, Sweep::PartSums);
}
void cross_entropy_of_parts(const kernels::CrossEntropy& args,
                            const kernels::CrossEntropyPartSums* /*sums*/, int64_t /*num_parts*/,
                            double* /*totals*/, void* /*workspace*/) {
  absent(args, Sweep::OfParts);
}
void attention_softmax(const kernels::AttentionScores& args) { absent(args, ScoreSweep::Softmax); }
void attention_probabilities(const kernels::AttentionScores& args, float* /*out*/) {
  absent(args, ScoreSweep::Probabilities);
}
void attention_scores_backward(const kernels::AttentionScores& args, const float* /*arriving*/,
                               const float* /*delta*/) {
  absent(args, ScoreSweep::Backward);
}
void attention_bias_backward(const kernels::AttentionScores& args, float* /*sums*/) {
  absent(args, ScoreSweep::BiasBackward);
}
void image_patches(const kernels::ImagePatches& args) { absent(args); }
int64_t delta_rule_forward_workspace_bytes(const kernels::DeltaRuleSizes& sizes) {
  return kernels::cuda::delta::workspace_bytes(sizes, kernels::cuda::delta::Pass::Forward);
}
int64_t delta_rule_backward_workspace_bytes(const kernels::DeltaRuleSizes& sizes) {
  return kernels::cuda::delta::workspace_bytes(sizes, kernels::cuda::delta::Pass::Backward);
}
void delta_rule_forward(const kernels::DeltaRuleForward& args, void* /*workspace*/) {
  absent(args);
}
void delta_rule_backward(const kernels::DeltaRuleBackward& args, void* /*workspace*/) {
  absent(args);
}
void delta_rule_step(const kernels::DeltaRuleStep& args) { absent(args); }
void dropout(const kernels::Dropout& args) { absent(args); }
int64_t sum_of_squares_workspace_bytes(std::span<const kernels::TensorView> tensors) {
  constexpr int64_t kListBlock = 16384;
  int64_t blocks = 0;
  for (const kernels::TensorView& t : tensors) blocks += (t.count + kListBlock - 1) / kListBlock;
  return blocks * 8;
}
void sum_of_squares(std::span<const kernels::TensorView> tensors, double* /*sum*/,
                    void* /*workspace*/) {
  absent(tensors);
}
void dequantize(const kernels::DequantizeOnDevice& args) { absent(args); }
void adamw_step(std::span<const kernels::AdamWTensor> tensors,
                const kernels::AdamWOptions& /*options*/) {
  absent(tensors);
}
void adamw_8bit_step(std::span<const kernels::AdamW8bitTensor> tensors,
                     const kernels::AdamWOptions& /*options*/) {
  absent(tensors);
}
#define SNUG_ELEMENT_WISE(Formula)                                                \
  template <>                                                                     \
  void element_step<kernels::Formula>(                                            \
      std::span<const kernels::ElementTensor<kernels::Formula::kStates>> tensors, \
      const kernels::ElementOptions& /*options*/) {                               \
    absent(tensors, kernels::kStepName<kernels::Formula>.c_str());                \
  }
#include "core/kernels/optimizers/all.def"
#undef SNUG_ELEMENT_WISE
void adafactor_step(const kernels::AdafactorTensor& tensor,
                    const kernels::AdafactorOptions& /*options*/, void* /*workspace*/) {
  absent(tensor);
}
bool has_flash_attention() { return true; }

}  // namespace snug::ops::cuda
