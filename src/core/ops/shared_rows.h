// Hidden states of N tokens under tensor parallelism. With sequence parallelism (Korthikanti et al.
// 2022) each rank keeps c = ceil(N / size) rows between layers: rank r the rows from r·c on. Rows
// beyond N are padding, with a gradient of zero.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "core/dist/group.h"
#include "core/ops/tensor_share.h"

namespace snug::ops {

// An asynchronous all-gather of rows, started by the constructor.
class GatheredRows {
 public:
  // `own` (c, D), contiguous.
  GatheredRows(const TensorShare& share, const at::Tensor& own, int64_t num_tokens);
  // (N, D). Without sequence parallelism the input itself.
  at::Tensor finish();

 private:
  const TensorShare& share_;
  at::Tensor whole_;
  int64_t num_tokens_;
  dist::Group::Ticket ticket_;
};

// An asynchronous sum over ranks, each of which has a term of every row.
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
  at::Tensor terms_;  // a view of room_
  at::Tensor sum_;
  dist::Group::Ticket ticket_;
};

}  // namespace snug::ops
