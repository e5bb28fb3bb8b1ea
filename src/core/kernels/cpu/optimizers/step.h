// An optimizer's step over a list of tensors, cut into blocks that threads share out.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "core/kernels/cpu/parallel.h"
#include "core/kernels/cpu/random_key.h"

namespace snug::kernels::cpu {

// range(tensor, factors, begin, end), with the tensor's key among the factors.
template <class Tensor, class Options, class Factors, class Range>
void step_in_blocks(std::span<const Tensor> tensors, const Options& options, const Factors& common,
                    const Range& range) {
  const std::vector<TensorBlock> blocks = tensor_blocks(tensors);
  parallel_blocks(static_cast<int64_t>(blocks.size()), options.num_threads, [&](int64_t b) {
    const Tensor& tensor = tensors[blocks[b].tensor];
    Factors factors = common;
    factors.random_key = random_key(options.seed, options.step, tensor.tensor_id);
    range(tensor, factors, blocks[b].begin, blocks[b].end);
  });
}

}  // namespace snug::kernels::cpu
