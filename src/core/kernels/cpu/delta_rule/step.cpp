// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include "base/error.h"
#include "core/kernels/cpu/isa.h"
#include "core/kernels/cpu/parallel.h"
#include "core/kernels/cpu/simd/kernels.h"
#include "core/kernels/delta_rule.h"

namespace snug::kernels::cpu {

void delta_rule_step(const DeltaRuleStep& args) {
  SNUG_CHECK(args.num_key_heads >= 1 && args.num_value_heads % args.num_key_heads == 0,
             "delta rule: {} value heads do not share {} key heads evenly", args.num_value_heads,
             args.num_key_heads);
  const auto step = SNUG_FOR_ISA(delta_step_head);
  const int64_t heads = args.num_value_heads, room = 2 * args.key_dim + args.value_dim;
  parallel_ranges(args.num_sequences * heads, args.key_dim * args.value_dim, args.num_threads,
                  [&](int64_t begin, int64_t end) {
                    std::vector<float> own(static_cast<size_t>(room));
                    for (int64_t i = begin; i < end; ++i)
                      step(args, i / heads, i % heads, own.data());
                  });
}

}  // namespace snug::kernels::cpu
