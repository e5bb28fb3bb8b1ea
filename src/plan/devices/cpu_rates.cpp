// SPDX-License-Identifier: Apache-2.0
#include "plan/devices/cpu_rates.h"

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "core/kernels/cpu/linalg/cpu_features.h"
#include "core/kernels/cpu/linalg/gemm.h"
#include "plan/devices/best_rates.h"

namespace snug::plan {
namespace {

namespace cpu = kernels::cpu;
using Clock = std::chrono::steady_clock;

// The best of as many rounds as fit into `seconds`: neighbours only ever slow one down.
template <class Round>
double best_rate(double work, double seconds, Round round) {
  const auto begin = Clock::now();
  double best = 0;
  do {
    const auto start = Clock::now();
    round();
    best = std::max(best, work / std::chrono::duration<double>(Clock::now() - start).count());
  } while (std::chrono::duration<double>(Clock::now() - begin).count() < seconds);
  return best;
}

double copy_rate(double seconds) {
  constexpr size_t kBytes = size_t{18} << 20;  // more than 32 MiB of cache hold, and no more than that
  std::vector<char> memory(2 * kBytes, 1);
  const char* from = memory.data();
  char* to = memory.data() + kBytes;
  return best_rate(2.0 * kBytes, seconds, [&] {
#pragma omp parallel for schedule(static)
    for (int64_t part = 0; part < 64; ++part)
      std::memcpy(to + part * (kBytes / 64), from + part * (kBytes / 64), kBytes / 64);
  });
}

double product_rate(cpu::Scalar type, double seconds) {
  constexpr int64_t kM = 512, kN = 2048, kK = 1024;
  constexpr size_t kWidest = sizeof(float);
  struct Free {
    void operator()(void* p) const { std::free(p); }
  };
  const auto buffer = [](size_t bytes) {
    constexpr size_t kLine = 64;
    std::unique_ptr<void, Free> memory(
        std::aligned_alloc(kLine, (bytes + kLine - 1) / kLine * kLine));
    std::memset(memory.get(), 0, bytes);
    return memory;
  };
  const auto a = buffer(kM * kK * kWidest), b = buffer(kK * kN * kWidest),
             c = buffer(kM * kN * kWidest);
  const cpu::GemmArgs args{.m = kM,
                           .n = kN,
                           .k = kK,
                           .a = {.data = a.get(), .type = type, .row_stride = kK},
                           .b = {.data = b.get(), .type = type, .row_stride = kN},
                           .c = c.get(),
                           .c_type = type,
                           .c_row_stride = kN};
  const auto workspace = buffer(static_cast<size_t>(cpu::gemm_workspace_bytes(args)));
  return best_rate(2.0 * kM * kN * kK, seconds, [&] { cpu::gemm(args, workspace.get()); });
}

std::string file_name() {
  std::string name = "cpu-rates-";
  for (const char c : cpu::cpu_summary())
    name += std::isalnum(static_cast<unsigned char>(c)) ? c : '-';
  return name + ".json";
}

}  // namespace

CpuRates cpu_rates(const std::filesystem::path& folder) {
  BestRates best(folder / file_name(), {"flops_16bit", "flops_32bit", "copy_bytes_per_second"});
  const double seconds = best.is_known() ? 0.03 : 0.2;
  best.raise("flops_16bit", product_rate(cpu::Scalar::BF16, seconds));
  best.raise("flops_32bit", product_rate(cpu::Scalar::F32, seconds));
  best.raise("copy_bytes_per_second", copy_rate(seconds));
  best.save();
  return {.flops_16bit = best["flops_16bit"],
          .flops_32bit = best["flops_32bit"],
          .copy_bytes_per_second = best["copy_bytes_per_second"]};
}

CpuRates cpu_rates() { return cpu_rates(rates_folder()); }

}  // namespace snug::plan
