// Keys and values of the tokens that generations have seen, one pair of tensors per attention
// layer, for S sequences of equal length: of pictures told of side by side, or of a beam search.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "ops/borders.h"

namespace snug::nn {

struct KvCacheShape {
  int64_t num_layers = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  int64_t capacity = 0;  // tokens of a sequence
  int64_t num_sequences = 1;
};

// What an encoder said of the sequences, as the keys and values of one decoder layer.
struct SourceKeys {
  at::Tensor keys, values;  // (M, Hkv, D)
  ops::Borders cu_seqlens;  // (S+1) int32
  int64_t max_seqlen = 0;
};

class KvCache {
 public:
  KvCache(const KvCacheShape& shape, at::Device device, at::ScalarType type);

  // Appends k and v (S·n, Hkv, D) of `layer`, n tokens of each sequence, after those counted so
  // far.
  void append(int64_t layer, const at::Tensor& k, const at::Tensor& v);
  // Counts n more tokens of each sequence, once all layers have appended them.
  void advance(int64_t num_tokens) { length_ += num_tokens; }
  void reset() { length_ = 0; }

  // Sequence i is from now on what sequence from[i] was; there may be more or fewer than before.
  void select(const std::vector<int64_t>& from);

  // (S, capacity, Hkv, D)
  const at::Tensor& keys(int64_t layer) const { return keys_[static_cast<size_t>(layer)]; }
  const at::Tensor& values(int64_t layer) const { return values_[static_cast<size_t>(layer)]; }
  int64_t num_sequences() const { return num_sequences_; }
  int64_t length() const { return length_; }  // tokens of each sequence
  int64_t capacity() const { return capacity_; }

  void keep_source(int64_t layer, SourceKeys source);
  // Null: keep_source() has not been called.
  const SourceKeys* source(int64_t layer) const;

 private:
  std::vector<at::Tensor> keys_, values_;
  std::vector<SourceKeys> sources_;
  int64_t num_sequences_;
  int64_t length_ = 0;
  int64_t capacity_;
};

}  // namespace snug::nn
