// Sharing out; the loops are in simd/dropout.cpp.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/dropout.h"

#include "kernels/cpu/isa.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/simd/kernels.h"

namespace snug::kernels::cpu {

void dropout(const Dropout& args) {
  const auto range = SNUG_FOR_ISA(dropout_range);
  parallel_ranges(args.count, 1, args.num_threads,
                  [&](int64_t begin, int64_t end) { range(args, begin, end); });
}

}  // namespace snug::kernels::cpu
