// Checks and sharing out; the rotation itself is in simd/rope.cpp.
// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/rope.h"

#include "base/error.h"
#include "core/kernels/cpu/isa.h"
#include "core/kernels/cpu/parallel.h"
#include "core/kernels/cpu/simd/kernels.h"

namespace snug::kernels::cpu {

void rope_apply(const RopeApply& args) {
  RopeApply full = args;
  if (full.rotary_dim == 0) full.rotary_dim = full.head_dim;
  if (full.token_stride == 0) full.token_stride = full.heads * full.head_dim;
  if (full.more_token_stride == 0) full.more_token_stride = full.more_heads * full.head_dim;
  SNUG_CHECK(full.rotary_dim % 2 == 0 && full.rotary_dim <= full.head_dim,
             "rotary width {} must be even and at most the head width {}", full.rotary_dim,
             full.head_dim);
  for (int64_t token = 0; token < full.tokens; ++token) {
    const int64_t position = full.positions[token];
    SNUG_CHECK(position >= 0 && position < full.max_positions,
               "position {} of token {} is outside the rotary table of {} positions", position,
               token, full.max_positions);
  }
  const auto turn = SNUG_FOR_ISA(rope_apply_tokens);
  parallel_ranges(full.tokens, (full.heads + full.more_heads) * full.rotary_dim, full.num_threads,
                  [&](int64_t begin, int64_t end) { turn(full, begin, end); });
}

}  // namespace snug::kernels::cpu
