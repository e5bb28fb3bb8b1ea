// What this processor can do, asked once: which kernels to run, and the bound to measure speed
// against.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace snug::kernels::cpu {

// Ordered: each level has everything of the one before it.
enum class Isa { Portable, Avx2, Avx512 };

// The best level this processor and operating system support. SNUG_CPU_ISA=portable|avx2|avx512 in
// the environment lowers it, for tests and for comparing.
Isa best_isa();
const char* isa_name(Isa isa);

// True where the processor multiplies bfloat16 itself (AVX512-BF16 or AMX). There libtorch's oneDNN
// product is faster than converting to float32.
bool has_fast_bf16_products();

// "AMD EPYC, 2 threads, avx2"
std::string cpu_summary();

// float32 multiply-adds per second times two, over all OpenMP threads at once: measured with a loop
// of independent multiply-adds for a few milliseconds. What a perfect matrix product would reach.
double cpu_peak_flops_estimate();

}  // namespace snug::kernels::cpu
