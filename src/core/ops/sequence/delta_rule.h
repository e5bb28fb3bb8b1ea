// The gated delta rule (Yang et al. 2024, "Gated Delta Networks") and Mamba 2's scan (Dao & Gu
// 2024, "Transformers are SSMs") over packed documents: attention of linear cost, whose memory is
// one matrix a value head. core/kernels/delta_rule.h has the formulas of both.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include "core/ops/attention/borders.h"

namespace snug::ops {

struct DeltaRuleContext {
  Borders cu_seqlens;      // (S+1) int32: document s holds tokens cu[s] .. cu[s+1]
  int64_t max_seqlen = 0;  // tokens of the longest document
  int64_t chunk = 64;      // tokens that are computed at once; changes last bits only
  // (S, Hv, dk, dv) float32, optional: gets the state behind each document, for the next step.
  at::Tensor final_states;
};

// q, k (N, Hk, dk) and v (N, Hv, dv) of one type, whose tokens may be apart (parts of one tensor's
// rows); g, the log of the decay, at most 0, and beta (N, Hv) float32 -> (N, Hv, dv) of v's type.
// Value head h reads query/key head h / (Hv / Hk). q and k are brought to length 1 here. Each
// document starts with a state of zeros. Saves its five inputs and nothing else.
at::Tensor gated_delta_rule(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const at::Tensor& g, const at::Tensor& beta,
                            const DeltaRuleContext& context);

// One token for each of S sequences: as above with S in place of N, states (S, Hv, dk, dv) float32,
// updated -> (S, Hv, dv). No gradient.
at::Tensor gated_delta_step(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const at::Tensor& g, const at::Tensor& beta, const at::Tensor& states);

// Mamba 2's scan, with its C, B, x, dt A, dt and D in the places of q, k, v, g and beta above, and
// with C and B as they come: each token adds beta v to the state, and skip (Hv) float32 times v to
// what it reads. Saves its inputs and nothing else.
at::Tensor mamba_scan(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                      const at::Tensor& g, const at::Tensor& beta, const at::Tensor& skip,
                      const DeltaRuleContext& context);
at::Tensor mamba_step(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                      const at::Tensor& g, const at::Tensor& beta, const at::Tensor& skip,
                      const at::Tensor& states);

}  // namespace snug::ops
