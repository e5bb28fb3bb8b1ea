// SPDX-License-Identifier: Apache-2.0
#include "core/ops/device/cuda.h"

#include <ATen/Context.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include "core/kernels/cuda/operators.h"
#include "core/kernels/cuda/optimizers/optimizers.h"
#include "core/ops/device/kernel_work.h"

namespace snug::ops::cuda {
namespace {

namespace device = kernels::cuda;

// Called by each operator before its first launch, so that an earlier error is not attributed to
// it.
cudaStream_t stream(const char* kernel) {
  device::check_before_launch(kernel);
  return c10::cuda::getCurrentCUDAStream().stream();
}

// Where work is counted nothing is launched.
template <class... Args>
bool noted(const Args&... args) {
  if (counts_work()) note_work(kernel_work(args...));
  return counts_work();
}

// Without a device (for plans) a newer one is assumed.
int compute_capability_major() {
  int current = 0;
  int major = 0;
  const bool known =
      cudaGetDevice(&current) == cudaSuccess &&
      cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, current) == cudaSuccess;
  if (!known) cudaGetLastError();  // it would be taken for the next call's
  return known ? major : 8;
}

namespace caching = c10::cuda::CUDACachingAllocator;

// The pool for the memory of recorded work. Once all users release a pool, its number is spent;
// libtorch's own pools have the other number.
struct RecordedPool {
  c10::MempoolId_t id = {0, 0};
  int64_t users = 0;
};
RecordedPool& recorded_pool() {
  static RecordedPool pool;
  return pool;
}

cudaGraphExec_t graph_of(void* graph) { return static_cast<cudaGraphExec_t>(graph); }

}  // namespace

void use_own_stream() {
  at::globalContext().lazyInitDevice(at::kCUDA);
  if (c10::cuda::getCurrentCUDAStream() != c10::cuda::getDefaultCUDAStream()) return;
  C10_CUDA_CHECK(cudaDeviceSynchronize());
  c10::cuda::setCurrentCUDAStream(c10::cuda::getStreamFromPool());
}

void begin_recording() {
  const c10::cuda::CUDAStream current = c10::cuda::getCurrentCUDAStream();
  if (recorded_pool().users++ == 0) ++recorded_pool().id.second;
  caching::beginAllocateToPool(
      current.device_index(), recorded_pool().id,
      [own = current.stream()](cudaStream_t stream) { return stream == own; });
  try {
    C10_CUDA_CHECK(cudaStreamBeginCapture(current.stream(), cudaStreamCaptureModeThreadLocal));
  } catch (...) {
    stop_recording();
    release_recorded_memory();
    throw;
  }
}

void* end_recording() {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  C10_CUDA_CHECK(cudaStreamEndCapture(c10::cuda::getCurrentCUDAStream().stream(), &graph));
  const cudaError_t error = cudaGraphInstantiate(&executable, graph, 0);
  cudaGraphDestroy(graph);
  C10_CUDA_CHECK(error);
  caching::endAllocateToPool(c10::cuda::current_device(), recorded_pool().id);
  return executable;
}

void stop_recording() {
  const cudaStream_t stream = c10::cuda::getCurrentCUDAStream().stream();
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  cudaGraph_t graph = nullptr;
  if (cudaStreamIsCapturing(stream, &status) == cudaSuccess &&
      status != cudaStreamCaptureStatusNone)
    cudaStreamEndCapture(stream, &graph);
  if (graph != nullptr) cudaGraphDestroy(graph);
  cudaGetLastError();  // of a recording that is given up
  caching::endAllocateToPool(c10::cuda::current_device(), recorded_pool().id);
}

void launch_graph(void* graph) {
  C10_CUDA_CHECK(cudaGraphLaunch(graph_of(graph), c10::cuda::getCurrentCUDAStream().stream()));
}

void destroy_graph(void* graph) {
  if (graph != nullptr) cudaGraphExecDestroy(graph_of(graph));
}

void release_recorded_memory() {
  caching::releasePool(c10::cuda::current_device(), recorded_pool().id);
  --recorded_pool().users;
}

void rms_norm_forward(const kernels::RmsNormForward& args) {
  if (!noted(args)) device::rms_norm_forward(args, stream(__func__));
}

int64_t rms_norm_backward_workspace_bytes(int64_t dim) {
  float wanted = 0;  // only that there is an address counts
  return device::rms_norm_backward_workspace_bytes({.dim = dim, .dweight = {.data = &wanted}});
}

void rms_norm_backward(const kernels::RmsNormBackward& args, void* workspace) {
  if (!noted(args)) device::rms_norm_backward(args, workspace, stream(__func__));
}

void layer_norm_forward(const kernels::LayerNormForward& args) {
  if (!noted(args)) device::layer_norm_forward(args, stream(__func__));
}

int64_t layer_norm_backward_workspace_bytes(int64_t dim, int gradients) {
  float wanted = 0;  // only that there is an address counts
  kernels::LayerNormBackward args{.dim = dim};
  if (gradients > 0) args.dweight.data = &wanted;
  if (gradients > 1) args.dbias.data = &wanted;
  return device::layer_norm_backward_workspace_bytes(args);
}

void layer_norm_backward(const kernels::LayerNormBackward& args, void* workspace) {
  if (!noted(args)) device::layer_norm_backward(args, workspace, stream(__func__));
}

void rope_apply(const kernels::RopeApply& args) {
  if (!noted(args)) device::rope_apply(args, stream(__func__));
}

void short_conv_forward(const kernels::ShortConvForward& args) {
  if (!noted(args)) device::short_conv_forward(args, stream(__func__));
}

int64_t short_conv_backward_workspace_bytes(int64_t features, int64_t sums) {
  return device::short_conv_backward_workspace_bytes(features, sums);
}

void short_conv_backward(const kernels::ShortConvBackward& args, void* workspace) {
  if (!noted(args)) device::short_conv_backward(args, workspace, stream(__func__));
}

void sum_of_rows(const kernels::SumOfRows& args) {
  if (!noted(args)) device::sum_of_rows(args, stream(__func__));
}

void move_head_rows(const kernels::HeadRows& args) {
  if (!noted(args)) device::move_head_rows(args, stream(__func__));
}

void change_head_widths(const kernels::HeadWidths& args) {
  if (!noted(args)) device::change_head_widths(args, stream(__func__));
}

void activation_forward(const kernels::ActivationForward& args) {
  if (!noted(args)) device::activation_forward(args, stream(__func__));
}

void activation_backward(const kernels::ActivationBackward& args) {
  if (!noted(args)) device::activation_backward(args, stream(__func__));
}

void gated_forward(const kernels::GatedForward& args) {
  if (!noted(args)) device::gated_forward(args, stream(__func__));
}

void gated_backward(const kernels::GatedBackward& args) {
  if (!noted(args)) device::gated_backward(args, stream(__func__));
}

void embedding_forward(const kernels::EmbeddingForward& args) {
  if (!noted(args)) device::embedding_forward(args, stream(__func__));
}

int64_t embedding_backward_workspace_bytes(int64_t tokens, int64_t dim) {
  return device::embedding_backward_workspace_bytes({.tokens = tokens, .dim = dim});
}

void embedding_backward(const kernels::EmbeddingBackward& args, void* workspace) {
  if (!noted(args)) device::embedding_backward(args, workspace, stream(__func__));
}

void teachers_logits(const kernels::CrossEntropy& args, float* out) {
  if (!noted(args, Sweep::TeachersLogits)) device::teachers_logits(args, out, stream(__func__));
}

int64_t cross_entropy_workspace_bytes(int64_t rows) {
  return device::cross_entropy_workspace_bytes({.rows = rows});
}

void cross_entropy(const kernels::CrossEntropy& args, double* totals, void* workspace) {
  static_assert(sizeof(device::CrossEntropyTotals) == kCrossEntropyTotals * sizeof(double));
  if (!noted(args))
    device::cross_entropy(args, reinterpret_cast<device::CrossEntropyTotals*>(totals), workspace,
                          stream(__func__));
}

void cross_entropy_part_sums(const kernels::CrossEntropy& args,
                             kernels::CrossEntropyPartSums* sums) {
  if (!noted(args, Sweep::PartSums)) device::cross_entropy_part_sums(args, sums, stream(__func__));
}

void cross_entropy_of_parts(const kernels::CrossEntropy& args,
                            const kernels::CrossEntropyPartSums* sums, int64_t num_parts,
                            double* totals, void* workspace) {
  if (!noted(args, Sweep::OfParts))
    device::cross_entropy_of_parts(args, sums, num_parts,
                                   reinterpret_cast<device::CrossEntropyTotals*>(totals), workspace,
                                   stream(__func__));
}

void attention_softmax(const kernels::AttentionScores& args) {
  if (!noted(args, ScoreSweep::Softmax)) device::attention_softmax(args, stream(__func__));
}

void attention_probabilities(const kernels::AttentionScores& args, float* out) {
  if (!noted(args, ScoreSweep::Probabilities))
    device::attention_probabilities(args, out, stream(__func__));
}

void attention_scores_backward(const kernels::AttentionScores& args, const float* arriving,
                               const float* delta) {
  if (!noted(args, ScoreSweep::Backward))
    device::attention_scores_backward(args, arriving, delta, stream(__func__));
}

void attention_bias_backward(const kernels::AttentionScores& args, float* sums) {
  if (!noted(args, ScoreSweep::BiasBackward))
    device::attention_bias_backward(args, sums, stream(__func__));
}

void image_patches(const kernels::ImagePatches& args) {
  if (!noted(args)) device::image_patches(args, stream(__func__));
}

int64_t delta_rule_forward_workspace_bytes(const kernels::DeltaRuleSizes& sizes) {
  return device::delta_rule_forward_workspace_bytes({.sizes = sizes});
}

int64_t delta_rule_backward_workspace_bytes(const kernels::DeltaRuleSizes& sizes) {
  return device::delta_rule_backward_workspace_bytes({.sizes = sizes});
}

void delta_rule_forward(const kernels::DeltaRuleForward& args, void* workspace) {
  if (!noted(args)) device::delta_rule_forward(args, workspace, stream(__func__));
}

void delta_rule_backward(const kernels::DeltaRuleBackward& args, void* workspace) {
  if (!noted(args)) device::delta_rule_backward(args, workspace, stream(__func__));
}

void delta_rule_step(const kernels::DeltaRuleStep& args) {
  if (!noted(args)) device::delta_rule_step(args, stream(__func__));
}

void dropout(const kernels::Dropout& args) {
  if (!noted(args)) device::dropout(args, stream(__func__));
}

int64_t sum_of_squares_workspace_bytes(std::span<const kernels::TensorView> tensors) {
  return device::sum_of_squares_workspace_bytes(tensors);
}

void sum_of_squares(std::span<const kernels::TensorView> tensors, double* sum, void* workspace) {
  if (!noted(tensors)) device::sum_of_squares(tensors, sum, workspace, stream(__func__));
}

void dequantize(const kernels::DequantizeOnDevice& args) {
  if (!noted(args)) device::dequantize(args, stream(__func__));
}

void adamw_step(std::span<const kernels::AdamWTensor> tensors,
                const kernels::AdamWOptions& options) {
  if (!noted(tensors))
    device::adamw_step(tensors, options, /*grad_scale=*/nullptr, stream(__func__));
}

void adamw_8bit_step(std::span<const kernels::AdamW8bitTensor> tensors,
                     const kernels::AdamWOptions& options) {
  if (!noted(tensors))
    device::adamw_8bit_step(tensors, options, /*grad_scale=*/nullptr, stream(__func__));
}

#define SNUG_ELEMENT_WISE(Formula)                                                     \
  template <>                                                                          \
  void element_step<kernels::Formula>(                                                 \
      std::span<const kernels::ElementTensor<kernels::Formula::kStates>> tensors,      \
      const kernels::ElementOptions& options) {                                        \
    const char* const name = kernels::kStepName<kernels::Formula>.c_str();             \
    if (!noted(tensors, name))                                                         \
      device::element_step<kernels::Formula>(tensors, options, /*grad_scale=*/nullptr, \
                                             stream(name));                            \
  }
#include "core/kernels/optimizers/all.def"
#undef SNUG_ELEMENT_WISE

void adafactor_step(const kernels::AdafactorTensor& tensor,
                    const kernels::AdafactorOptions& options, void* workspace) {
  if (!noted(tensor)) device::adafactor_step(tensor, options, workspace, stream(__func__));
}

bool has_flash_attention() {
  static const bool ampere_or_newer = compute_capability_major() >= 8;
  return ampere_or_newer;
}

}  // namespace snug::ops::cuda
