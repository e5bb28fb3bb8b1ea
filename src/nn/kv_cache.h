// Keys and values of the tokens a generation has seen, one pair of tensors per attention layer.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace snug::nn {

struct KvCacheShape {
  int64_t num_layers = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  int64_t capacity = 0;  // tokens
};

class KvCache {
 public:
  KvCache(const KvCacheShape& shape, at::Device device, at::ScalarType type);

  // Appends k and v (N, Hkv, D) of `layer` after the tokens counted so far.
  void append(int64_t layer, const at::Tensor& k, const at::Tensor& v);
  // Counts N more tokens, once all layers have appended them.
  void advance(int64_t num_tokens) { length_ += num_tokens; }
  void reset() { length_ = 0; }

  const at::Tensor& keys(int64_t layer) const { return keys_[static_cast<size_t>(layer)]; }
  const at::Tensor& values(int64_t layer) const { return values_[static_cast<size_t>(layer)]; }
  int64_t length() const { return length_; }
  int64_t capacity() const { return capacity_; }

 private:
  std::vector<at::Tensor> keys_;    // each (capacity, Hkv, D)
  std::vector<at::Tensor> values_;  // each (capacity, Hkv, D)
  int64_t length_ = 0;
  int64_t capacity_;
};

}  // namespace snug::nn
