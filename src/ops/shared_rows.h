// Hidden states of N tokens where the ranks of a group share layers. With sequence parallelism
// (Korthikanti et al. 2022) each rank keeps c = ceil(N / size) rows of them between layers: rank r
// those from r·c on. Rows beyond N are zero or belong to nobody: their gradient is zero.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "dist/group.h"

namespace snug::ops {

struct TensorShare {
  dist::Group* group = nullptr;  // outlives the model
  bool sequence_parallel = true;

  int64_t rows_of(int64_t num_tokens) const {
    const int64_t size = group->size();
    return sequence_parallel ? (num_tokens + size - 1) / size : num_tokens;
  }
  // Those whose rows are others than this rank's.
  dist::Group* other_rows() const { return sequence_parallel ? group : nullptr; }
};

// Everybody's rows, from start to finish on their way.
class GatheredRows {
 public:
  // `own` (c, D), contiguous.
  GatheredRows(const TensorShare& share, const at::Tensor& own, int64_t num_tokens);
  // (N, D). Without sequence parallelism that is what came in.
  at::Tensor finish();

 private:
  const TensorShare& share_;
  at::Tensor whole_;
  int64_t num_tokens_;
  dist::Group::Ticket ticket_;
};

// A sum over the ranks, each of which has a term of every row.
class SummedRows {
 public:
  SummedRows(const TensorShare& share, int64_t num_tokens, int64_t columns,
             const at::TensorOptions& options);
  // (N, D), to be written before start().
  const at::Tensor& terms() const { return terms_; }
  void start();
  // This rank's rows (c, D), or all (N, D) without sequence parallelism.
  at::Tensor finish();

 private:
  const TensorShare& share_;
  at::Tensor room_;   // all ranks' rows
  at::Tensor terms_;  // a view of it
  at::Tensor sum_;
  dist::Group::Ticket ticket_;
};

}  // namespace snug::ops
