// libtorch's at::mm_out on the shapes of gemm_bench.
// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/core.h>

#include <cstdlib>
#include <cstring>

#include "kernels/gemm_timing.h"

int main(int argc, char** argv) {
  const double budget = argc > 1 ? std::atof(argv[1]) : 0.5;
  at::set_num_threads(omp_get_max_threads());
  for (const auto& s : snug::bench::kGemmShapes) {
    if (argc > 2 && !std::strstr(s.name, argv[2])) continue;
    for (at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      const at::Tensor a =
          s.a_transposed ? at::randn({s.k, s.m}).to(type).t() : at::randn({s.m, s.k}).to(type);
      const at::Tensor b =
          s.b_transposed ? at::randn({s.n, s.k}).to(type).t() : at::randn({s.k, s.n}).to(type);
      at::Tensor c = at::empty({s.m, s.n}, type);
      const auto timing = snug::bench::best_time(budget, [&] { at::mm_out(c, a, b); });
      const double flops = 2.0 * double(s.m) * double(s.n) * double(s.k) / timing.seconds;
      fmt::print("{:18} {:>5} {:5}x{:5}x{:5} {:8.1f} GFLOP/s {:5.1f} %\n", s.name,
                 type == at::kFloat ? "f32" : "bf16", s.m, s.n, s.k, flops * 1e-9,
                 100 * flops / timing.bound);
    }
  }
}
