// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/linalg/cpu_features.h"

#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <string_view>

#include "base/error.h"
#include "kernels/cpu/linalg/kernels.h"

#ifdef __x86_64__
#include <cpuid.h>
#endif

namespace snug::kernels::cpu {
namespace {

Isa detected_isa() {
#ifdef __x86_64__
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                    __builtin_cpu_supports("f16c");
  if (avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
    return Isa::Avx512;
  }
  if (avx2) return Isa::Avx2;
#endif
  return Isa::Portable;
}

Isa allowed_isa() {
  const char* wanted = std::getenv("SNUG_CPU_ISA");
  if (!wanted) return Isa::Avx512;
  for (Isa isa : {Isa::Portable, Isa::Avx2, Isa::Avx512}) {
    if (std::string_view(wanted) == isa_name(isa)) return isa;
  }
  throw UserError("environment: SNUG_CPU_ISA = \"{}\" is none of portable, avx2, avx512", wanted);
}

std::string model_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.starts_with("model name")) {
      const size_t start = line.find(": ");
      if (start != std::string::npos) return line.substr(start + 2);
    }
  }
  return "unknown processor";
}

}  // namespace

Isa best_isa() {
  static const Isa isa = std::min(detected_isa(), allowed_isa());
  return isa;
}

const char* isa_name(Isa isa) {
  return isa == Isa::Avx512 ? "avx512" : isa == Isa::Avx2 ? "avx2" : "portable";
}

bool has_fast_bf16_products() {
#ifdef __x86_64__
  if (detected_isa() != Isa::Avx512) return false;
  if (__builtin_cpu_supports("avx512bf16")) return true;
  // AMX-BF16 has no name in older compilers: leaf 7, EDX bit 22.
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d >> 22 & 1);
#else
  return false;
#endif
}

std::string cpu_summary() {
  const int threads = omp_get_max_threads();
  return fmt::format("{}, {} thread{}, {}", model_name(), threads, threads == 1 ? "" : "s",
                     isa_name(best_isa()));
}

double cpu_peak_flops_estimate() {
  using Clock = std::chrono::steady_clock;
  const Kernels& kernels = kernels_for(best_isa());
  double total = 0;
#pragma omp parallel reduction(+ : total)
  {
    kernels.fma_loop(1 << 18);  // up to speed
    double best = 0;            // of several, since others may use the core too
    for (int attempt = 0; attempt < 5; ++attempt) {
      const auto start = Clock::now();
      const double flops = kernels.fma_loop(1 << 17);
      best = std::max(best, flops / std::chrono::duration<double>(Clock::now() - start).count());
    }
    total += best;
  }
  return total;
}

}  // namespace snug::kernels::cpu
