// Sharing out; the functions themselves are in simd/activation.cpp.
// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/activation.h"

#include "core/kernels/cpu/isa.h"
#include "core/kernels/cpu/parallel.h"
#include "core/kernels/cpu/simd/kernels.h"

namespace snug::kernels::cpu {
namespace {

template <class Args>
Args with_strides(Args args) {
  if (args.input_stride == 0) args.input_stride = args.features;
  if (args.output_stride == 0) args.output_stride = args.features;
  return args;
}

}  // namespace

void activation_forward(const ActivationForward& args) {
  const auto range = SNUG_FOR_ISA(activation_forward_range);
  parallel_ranges(args.count, 1, args.num_threads,
                  [&](int64_t begin, int64_t end) { range(args, begin, end); });
}

void activation_backward(const ActivationBackward& args) {
  const auto range = SNUG_FOR_ISA(activation_backward_range);
  parallel_ranges(args.count, 1, args.num_threads,
                  [&](int64_t begin, int64_t end) { range(args, begin, end); });
}

void gated_forward(const GatedForward& args) {
  const GatedForward full = with_strides(args);
  const auto rows = SNUG_FOR_ISA(gated_forward_rows);
  parallel_ranges(full.rows, full.features, full.num_threads,
                  [&](int64_t begin, int64_t end) { rows(full, begin, end); });
}

void gated_backward(const GatedBackward& args) {
  const GatedBackward full = with_strides(args);
  const auto rows = SNUG_FOR_ISA(gated_backward_rows);
  parallel_ranges(full.rows, full.features, full.num_threads,
                  [&](int64_t begin, int64_t end) { rows(full, begin, end); });
}

}  // namespace snug::kernels::cpu
