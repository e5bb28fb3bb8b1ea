// The rotation of queries and keys by their positions, and which of its tables a row takes.
//
// Longrope (Ding et al. 2024) has two sets of frequencies: rows that end within the positions of
// the pretraining turn by the short factors, longer ones by the long. transformers chooses by the
// longest row of the batch at hand; here each row has the ones of its own length, so that its
// numbers do not depend on what it is packed with. A generation has those of the longest text that
// it may come to: keys that are kept could not be turned again.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "models/llama/config.h"
#include "nn/unit.h"
#include "ops/rope.h"

namespace snug::models::llama {

class Rope {
 public:
  // For rows of up to max_seqlen tokens. Throws UserError where the config's factors are wrong.
  void prepare(const Config& config, int64_t max_seqlen, at::Device device);

  const ops::RopeTables& tables() const { return tables_; }

  // (N) int32: where in the tables each token's angles stand. Throws UserError where ranks share
  // the tokens of several rows that need both sets: none of them knows all of the rows' lengths.
  at::Tensor places(const nn::Batch& batch) const;

 private:
  ops::RopeTables tables_;
  // Behind so many rows of the short factors stand those of the long ones; 0: there is one set.
  int64_t short_rows_ = 0;
};

}  // namespace snug::models::llama
