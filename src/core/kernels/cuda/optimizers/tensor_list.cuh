// Many tensors in one launch: their descriptors travel as the kernel's argument, and each block
// finds its tensor and stretch from the running count of blocks. Kernels take up to 32,764 bytes of
// arguments on Volta and later, which holds the lists of common models whole.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <tuple>
#include <vector>

#include "core/kernels/cuda/elements.cuh"
#include "core/kernels/cuda/scratch.h"
#include "core/kernels/random_key.h"

namespace snug::kernels::cuda {

inline constexpr int kListThreads = 256;
inline constexpr int64_t kListBlock = 16384;  // elements a block handles

template <class Tensor>
struct TensorList {
  static constexpr int kCapacity = static_cast<int>(kListBytes / (sizeof(Tensor) + 4));
  int size = 0;
  unsigned blocks_up_to[kCapacity];  // blocks of tensors 0 to k
  Tensor tensors[kCapacity];
};

// The CPU's description of a tensor, with the key of its random numbers.
template <class T>
struct Keyed : T {
  uint64_t random_key;
};

template <class T, class Options>
std::vector<Keyed<T>> keyed(std::span<const T> tensors, const Options& options) {
  std::vector<Keyed<T>> result;
  for (const T& t : tensors)
    result.push_back({t, random_key(options.seed, options.step, t.tensor_id)});
  return result;
}

struct BlockRange {
  int tensor;
  int64_t begin;
  int64_t end;
};

template <class Tensor>
__device__ inline BlockRange range_of_block(const TensorList<Tensor>& list, unsigned block) {
  int low = 0, high = list.size - 1;  // the first tensor whose running count is above `block`
  while (low < high) {
    const int middle = (low + high) / 2;
    if (list.blocks_up_to[middle] > block) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  const unsigned before = low == 0 ? 0 : list.blocks_up_to[low - 1];
  const int64_t begin = (block - before) * kListBlock;
  const int64_t count = list.tensors[low].count;
  return {low, begin, begin + kListBlock < count ? begin + kListBlock : count};
}

// launch(list, blocks) for each run of tensors of one kind, as many at once as fit. `kind` maps a
// tensor to what the kernel is compiled for.
template <class Tensor, class Kind, class Launch>
void for_each_list(std::span<const Tensor> tensors, const Kind& kind, const Launch& launch) {
  TensorList<Tensor> list;
  int64_t blocks = 0;
  const auto flush = [&] {
    if (blocks > 0) launch(list, blocks);
    list.size = 0;
    blocks = 0;
  };
  for (const Tensor& tensor : tensors) {
    if (tensor.count == 0) continue;
    const bool other_kind = list.size > 0 && kind(list.tensors[0]) != kind(tensor);
    if (other_kind || list.size == TensorList<Tensor>::kCapacity) flush();
    blocks += blocks_for(tensor.count, kListBlock);
    list.tensors[list.size] = tensor;
    list.blocks_up_to[list.size] = static_cast<unsigned>(blocks);
    ++list.size;
  }
  flush();
}

// launch(list, blocks, P{}, G{}, S{}) with the types of weights, gradients and states, for tensors
// whose states are float32 or bfloat16.
template <class Tensor, class Launch>
void for_each_typed_list(std::span<const Tensor> tensors, const Launch& launch) {
  const auto kind = [](const Tensor& t) {
    return std::tuple(t.param_type, t.grad_type, t.state_type);
  };
  for_each_list(tensors, kind, [&](const auto& list, int64_t blocks) {
    with_type(list.tensors[0].param_type, [&](auto p) {
      with_type(list.tensors[0].grad_type, [&](auto g) {
        if (list.tensors[0].state_type == Scalar::F32) {
          launch(list, blocks, p, g, float{});
        } else {
          launch(list, blocks, p, g, BF16{});
        }
      });
    });
  });
}

}  // namespace snug::kernels::cuda
