// Tokens under expert parallelism (Lepikhin et al. 2021): the ranks of a group have tokens of their
// own and each some of a block's experts. Every rank gets all ranks' tokens, computes what its
// experts add to them, and each token's rank gets the sum of these terms. Buffers are as large
// however tokens are routed.
//
// Shapes: N tokens of this rank, M of the rank that has most, P ranks. Of all ranks' tokens, (P M),
// rank r's are the rows from r·M on; rows behind them are zero.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace snug::dist {
class Group;
}

namespace snug::ops {

struct ExpertShare {
  dist::Group* group = nullptr;
  // M, of this micro-batch; 0: all ranks have the same tokens, as when they generate text. Then no
  // tokens are exchanged, all ranks get the same sum, to the bit, and there is no backward.
  int64_t most_tokens = 0;

  bool has_same_tokens() const { return most_tokens == 0; }

  int64_t first_row() const;  // of this rank's tokens among all
  // This rank's experts among `num_experts`: as many on each rank, consecutive.
  int64_t first_expert(int64_t num_experts) const;
  int64_t own_experts(int64_t num_experts) const;
};

// x (N, D) -> (P M, D). Each rank's incoming gradient is a term; x gets the sum.
at::Tensor tokens_of_all(const at::Tensor& x, const ExpertShare& share);

// terms (P M, D) -> (N, D): the sum over ranks of their terms of this rank's tokens, in the terms'
// type.
at::Tensor sum_of_terms(const at::Tensor& terms, int64_t num_tokens, const ExpertShare& share);

// experts (N, k) int64 -> (P M, k), -1 in rows without a token. No gradient.
at::Tensor choices_of_all(const at::Tensor& experts, const ExpertShare& share);

}  // namespace snug::ops
