// Sharing out; the loops are in simd/dropout.cpp.
// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/dropout.h"

#include "core/kernels/cpu/isa.h"
#include "core/kernels/cpu/parallel.h"
#include "core/kernels/cpu/simd/kernels.h"

namespace snug::kernels::cpu {

void dropout(const Dropout& args) {
  const auto range = SNUG_FOR_ISA(dropout_range);
  if (args.columns > 0) {
    const int64_t row_bytes = args.columns * scalar_bytes(args.type);
    const int64_t before = args.first_column / args.whole_columns;
    const int64_t column = args.first_column % args.whole_columns;
    parallel_ranges(
        args.count / args.columns, args.columns, args.num_threads, [&](int64_t begin, int64_t end) {
          for (int64_t row = begin; row < end; ++row) {
            Dropout own = args;
            own.x = static_cast<const char*>(args.x) + row * row_bytes;
            own.out = static_cast<char*>(args.out) + row * row_bytes;
            if (args.noise != nullptr) own.noise = args.noise + before + row;
            own.first_index = args.places.of(before + row) * args.whole_columns + column;
            range(own, 0, args.columns);
          }
        });
    return;
  }
  parallel_ranges(args.count, 1, args.num_threads,
                  [&](int64_t begin, int64_t end) { range(args, begin, end); });
}

}  // namespace snug::kernels::cpu
