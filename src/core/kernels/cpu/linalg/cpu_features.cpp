// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/cpu/linalg/cpu_features.h"

#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <string_view>

#include "base/error.h"
#include "core/kernels/cpu/linalg/isa/kernels.h"

#ifdef __x86_64__
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace snug::kernels::cpu {
namespace {

#ifdef __x86_64__
// The processor has AMX-TILE and AMX-BF16 (leaf 7, EDX bits 24 and 22), and the system saves tile
// registers for a process that asks for it.
bool may_use_amx() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(d >> 22 & 1) || !(d >> 24 & 1)) return false;
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XTILEDATA
  return ::syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}
#endif

Isa detected_isa() {
#ifdef __x86_64__
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                    __builtin_cpu_supports("f16c");
  if (avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
    if (!__builtin_cpu_supports("avx512bf16")) return Isa::Avx512;
    return may_use_amx() ? Isa::Amx : Isa::Avx512Bf16;
  }
  if (avx2) return Isa::Avx2;
#endif
  return Isa::Portable;
}

Isa allowed_isa() {
  const char* wanted = std::getenv("SNUG_CPU_ISA");
  if (!wanted) return Isa::Amx;
  for (Isa isa : {Isa::Portable, Isa::Avx2, Isa::Avx512, Isa::Avx512Bf16, Isa::Amx}) {
    if (std::string_view(wanted) == isa_name(isa)) return isa;
  }
  throw UserError(
      "environment: SNUG_CPU_ISA = \"{}\" is none of portable, avx2, avx512, avx512_bf16, amx",
      wanted);
}

// Flops of multiplying panels that stay in the first-level cache.
double tile_loop(const Tile& tile, int64_t rounds) {
  constexpr int64_t kDepth = 128;
  alignas(64) float a[32 * kDepth] = {}, b[32 * kDepth] = {}, c[kMaxTileFloats] = {};
  for (int64_t r = 0; r < rounds; ++r) tile.multiply(kDepth, a, b, c, tile.nr, 1.f, false);
  return 2.0 * tile.mr * tile.nr * double(kDepth * tile.per_float) * double(rounds);
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
  static constexpr const char* kNames[] = {"portable", "avx2", "avx512", "avx512_bf16", "amx"};
  return kNames[static_cast<size_t>(isa)];
}

std::string cpu_summary() {
  const int threads = omp_get_max_threads();
  return fmt::format("{}, {} thread{}, {}", model_name(), threads, threads == 1 ? "" : "s",
                     isa_name(best_isa()));
}

double cpu_peak_flops_estimate(Scalar type) {
  using Clock = std::chrono::steady_clock;
  const Kernels& kernels = kernels_for(best_isa());
  const Tile* tile = type == Scalar::BF16 ? kernels.bf16 : nullptr;
  double total = 0;
#pragma omp parallel reduction(+ : total)
  {
    if (tile && tile->begin_thread) tile->begin_thread();
    const auto work = [&](int64_t rounds) {
      return tile ? tile_loop(*tile, rounds) : kernels.fma_loop(rounds);
    };
    constexpr int64_t kRounds = 1 << 17;
    const int64_t rounds = tile ? kRounds / (tile->mr * tile->nr / 8) : kRounds;
    work(2 * rounds);  // up to speed
    double best = 0;   // of several, since others may use the core too
    for (int attempt = 0; attempt < 5; ++attempt) {
      const auto start = Clock::now();
      const double flops = work(rounds);
      best = std::max(best, flops / std::chrono::duration<double>(Clock::now() - start).count());
    }
    total += best;
    if (tile && tile->end_thread) tile->end_thread();
  }
  return total;
}

}  // namespace snug::kernels::cpu
