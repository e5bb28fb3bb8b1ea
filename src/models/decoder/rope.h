// Rotary position embeddings (RoPE) of queries and keys: the tables of angles and the choice among
// them.
//
// Longrope (Ding et al. 2024) has two sets of frequencies: short factors for rows within the
// positions of the pretraining, long factors for longer rows. transformers chooses by the longest
// row of the batch; here each row uses the set for its own length, so that results do not depend on
// how rows are packed. A generation uses the set for the longest text it may reach, since cached
// keys cannot be rotated again.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/nn/unit.h"
#include "core/ops/rope.h"
#include "models/decoder/config.h"

namespace snug::models::decoder {

class Rope {
 public:
  // Makes the tables for rows of up to max_seqlen tokens. Throws UserError if the scaling's factors
  // are invalid.
  void prepare(const kernels::cpu::RopeScaling& scaling, const RotatedPart& part,
               int64_t max_seqlen, at::Device device);

  const ops::RopeTables& tables() const { return tables_; }

  // (N) int32: each token's row in the tables. Throws UserError if context parallelism splits
  // several rows that need both sets, since not all of their lengths are known then.
  at::Tensor places(const nn::Batch& batch) const;

 private:
  ops::RopeTables tables_;
  // Table rows with short factors, which come before those with long ones; 0: only one set.
  int64_t short_rows_ = 0;
};

}  // namespace snug::models::decoder
