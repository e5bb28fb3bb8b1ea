// An optimizer's step over a list of tensors, one element a thread at a time, for optimizers whose
// elements know nothing of each other.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/kernels/cuda/tensor_list.cuh"

namespace snug::kernels::cuda {

// Rule::update<P, G, S>(tensor, factors, scale, i) moves element i of a Rule::Described, whose
// gradient is to be multiplied by `scale`, by a Rule::Factors. Nothing moves where the scale is not
// finite.
template <class Rule, class P, class G, class S>
__global__ void __launch_bounds__(kListThreads)
    update_elements(const __grid_constant__ TensorList<typename Rule::Described> list,
                    typename Rule::Factors factors, const float* grad_scale) {
  const float scale = grad_scale != nullptr ? factors.grad_scale * *grad_scale : factors.grad_scale;
  if (!isfinite(scale)) return;
  const BlockRange at = range_of_block(list, blockIdx.x);
  for (int64_t i = at.begin + threadIdx.x; i < at.end; i += kListThreads) {
    Rule::template update<P, G, S>(list.tensors[at.tensor], factors, scale, i);
  }
}

// `name` is the step's in errors.
template <class Rule>
void update_tensors(const std::vector<typename Rule::Described>& tensors,
                    const typename Rule::Factors& factors, const float* grad_scale,
                    cudaStream_t stream, const char* name) {
  for_each_typed_list(std::span<const typename Rule::Described>(tensors),
                      [&](const auto& list, int64_t blocks, auto p, auto g, auto s) {
                        launch(name, update_elements<Rule, decltype(p), decltype(g), decltype(s)>,
                               blocks, kListThreads, 0, stream, list, factors, grad_scale);
                      });
}

}  // namespace snug::kernels::cuda
