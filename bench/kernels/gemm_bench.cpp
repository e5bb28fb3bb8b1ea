// gemm: GFLOP/s, share of the bound and bytes of B per second, by shape and storage type.
// Usage: gemm_bench [seconds a shape] [part of a shape's name]; OMP_NUM_THREADS chooses the
// threads.
// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/cpu/linalg/gemm.h"

#include <fmt/core.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "kernels/gemm_timing.h"

namespace {

using namespace snug::kernels;
using namespace snug::kernels::cpu;
using snug::bench::GemmShape;

// The same bytes give small numbers in every type: 1/64 or so.
std::vector<float> storage(int64_t elements, Scalar type) {
  const float value = type == Scalar::F32 ? 0.0156f : 2.3514e-38f;
  return std::vector<float>(size_t(elements * scalar_bytes(type) / 4 + 1), value);
}

void measure(const GemmShape& s, Scalar type, double budget) {
  std::vector<float> a = storage(s.m * s.k, type), b = storage(s.k * s.n, type),
                     c = storage(s.m * s.n, type);
  GemmArgs args{.m = s.m, .n = s.n, .k = s.k};
  args.a = {a.data(), type, s.a_transposed ? 1 : s.k, s.a_transposed ? s.m : 1};
  args.b = {b.data(), type, s.b_transposed ? 1 : s.n, s.b_transposed ? s.k : 1};
  args.c = c.data(), args.c_type = type, args.c_row_stride = s.n;
  const int64_t bytes = (gemm_workspace_bytes(args) + 63) / 64 * 64;
  const std::unique_ptr<void, decltype(&std::free)> workspace(std::aligned_alloc(64, size_t(bytes)),
                                                              &std::free);
  const auto timing = snug::bench::best_time(budget, [&] { gemm(args, workspace.get()); });
  const double flops = 2.0 * double(s.m) * double(s.n) * double(s.k) / timing.seconds;
  fmt::print("{:18} {:>5} {:5}x{:5}x{:5} {:8.1f} GFLOP/s {:5.1f} % {:6.1f} GB/s of B {:6.1f} MiB\n",
             s.name, type == Scalar::F32 ? "f32" : "bf16", s.m, s.n, s.k, flops * 1e-9,
             100 * flops / timing.bound,
             double(s.k * s.n * scalar_bytes(type)) / timing.seconds * 1e-9,
             double(bytes) / (1 << 20));
}

}  // namespace

int main(int argc, char** argv) {
  const double budget = argc > 1 ? std::atof(argv[1]) : 0.5;
  fmt::print("{}: {:.1f} GFLOP/s\n", cpu_summary(), cpu_peak_flops_estimate() * 1e-9);
  for (const GemmShape& shape : snug::bench::kGemmShapes) {
    if (argc > 2 && !std::strstr(shape.name, argv[2])) continue;
    for (Scalar type : {Scalar::F32, Scalar::BF16}) measure(shape, type, budget);
  }
}
