// The processor's features, detected once, to choose kernels and to know the peak speed.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "core/kernels/scalar.h"

namespace snug::kernels::cpu {

// Ordered: each level has everything of the one before it.
enum class Isa { Portable, Avx2, Avx512, Avx512Bf16, Amx };

// The best level this processor and operating system support. SNUG_CPU_ISA=portable|avx2|avx512|
// avx512_bf16|amx in the environment lowers it, for tests and for comparing.
Isa best_isa();
const char* isa_name(Isa isa);

// "AMD EPYC, 2 threads, avx2"
std::string cpu_summary();

// Multiply-adds per second times two, over all OpenMP threads at once, of operands of `type`:
// measured in registers (float32) or the first-level cache (bfloat16, where the processor
// multiplies that) for a few milliseconds. What a perfect matrix product would reach.
double cpu_peak_flops_estimate(Scalar type = Scalar::F32);

}  // namespace snug::kernels::cpu
