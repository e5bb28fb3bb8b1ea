// The key-value cache of a generation: keys and values of all tokens so far, one pair of tensors
// per attention layer, for S sequences of equal length (pictures captioned together, or the beams
// of a search); and what layers of other kinds keep of those tokens.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "core/ops/attention/borders.h"

namespace snug::nn {

// Keys and values that one decoder layer's cross-attention computes from the encoder's output.
struct SourceKeys {
  at::Tensor keys, values;  // (M, Hkv, D)
  ops::Borders cu_seqlens;  // (S+1) int32
  int64_t max_seqlen = 0;
};

class KvCache {
 public:
  // `capacity`: tokens per sequence. A layer's tensors are allocated when it first appends.
  explicit KvCache(int64_t capacity, int64_t num_sequences = 1)
      : num_sequences_(num_sequences), capacity_(capacity) {}

  // Writes k and v (S·n, Hkv, D) of `layer`, n tokens per sequence, after the first length()
  // tokens; does nothing where they are there already, as with layers that share keys and values.
  void append(int64_t layer, const at::Tensor& k, const at::Tensor& v);
  // Adds n to length(), once all layers have appended their n tokens.
  void advance(int64_t num_tokens) { length_ += num_tokens; }
  void reset() {
    length_ = 0;
    held_.clear();
  }

  // Replaces sequence i by a copy of sequence from[i]; their number may change.
  void select(const std::vector<int64_t>& from);

  // (S, capacity, Hkv, D)
  const at::Tensor& keys(int64_t layer) const { return keys_[static_cast<size_t>(layer)]; }
  const at::Tensor& values(int64_t layer) const { return values_[static_cast<size_t>(layer)]; }
  int64_t num_sequences() const { return num_sequences_; }
  int64_t length() const { return length_; }  // tokens per sequence
  int64_t capacity() const { return capacity_; }

  // (S, rows, features): the last inputs of a short convolution, which it sets itself.
  at::Tensor& recent(int64_t layer) { return of_layer(recent_, layer); }
  // (S, Hv, dk, dv) float32: the state of a gated delta rule or of Mamba 2, likewise.
  at::Tensor& state(int64_t layer) { return of_layer(states_, layer); }

  void keep_source(int64_t layer, SourceKeys source);
  // Null before keep_source().
  const SourceKeys* source(int64_t layer) const;

 private:
  static at::Tensor& of_layer(std::vector<at::Tensor>& all, int64_t layer);

  std::vector<at::Tensor> keys_, values_, recent_, states_;  // undefined for layers that have none
  std::vector<int64_t> held_;  // tokens per sequence that each layer has
  std::vector<SourceKeys> sources_;
  int64_t num_sequences_;
  int64_t length_ = 0;
  int64_t capacity_;
};

}  // namespace snug::nn
