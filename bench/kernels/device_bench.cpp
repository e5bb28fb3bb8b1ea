// Each kernel of a device at the sizes of a step, beside the device's own copy and matrix product,
// measured in the same run.
//   device_bench [cpu|cuda, default cuda] [milliseconds for each, default 60; 0: once, and no
//   figures] [only those with this in their name]
// A line of JSON each: microseconds, bytes that must be read and written and their rate, or
// operations and theirs.
// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/arange.h>
#include <ATen/ops/mm.h>

#include <cstdio>
#include <exception>
#include <string>

#include "core/memory/allocators.h"
#include "core/ops/attention/library_attention.h"
#include "engine/host.h"
#include "kernels/device_timing.h"

namespace snug::bench {
namespace {

// A micro-batch of 4 x 2048 tokens of a Llama of 1.1 billion parameters; for the cpu a small part
// of it.
constexpr Sizes kGpu = {8192, 2048, 5632, 32, 64, 32000, 2048, int64_t{1} << 26, 8192};
constexpr Sizes kCpu = {128, 256, 704, 4, 64, 3200, 32, int64_t{1} << 18, 256};

void measure_ceilings(DeviceBench& bench, const Sizes& s) {
  const at::Tensor from = bench.numbers({s.parameters * 4}), to = bench.numbers({s.parameters * 4});
  bench.stream("copy", bytes_of({from, to}), [&] { to.copy_(from); });
  if (bench.on_gpu()) {
    const at::Tensor host =
        at::zeros({s.parameters * 4}, at::dtype(at::kBFloat16).pinned_memory(true));
    bench.stream("copy_to_device", bytes_of({to}), [&] { to.copy_(host, /*non_blocking=*/true); });
    bench.stream("copy_to_host", bytes_of({to}), [&] { host.copy_(to, /*non_blocking=*/true); });
  }
  const auto product = [&](const char* name, at::ScalarType type, int64_t n, int64_t k, int64_t m,
                           const char* precision = "highest") {
    engine::choose_matmul_precision(from.device(), precision);
    const at::Tensor a = bench.numbers({n, k}, type), b = bench.numbers({m, k}, type);
    at::Tensor out = bench.numbers({n, m}, type);
    bench.compute(name, 2.0 * static_cast<double>(n * k * m), [&] { at::mm_out(out, a, b.t()); });
  };
  product("product_bf16", at::kBFloat16, s.product, s.product, s.product);
  product("product_f16", at::kHalf, s.product, s.product, s.product);
  const int64_t half = s.product / 2;
  product("product_f32", at::kFloat, half, half, half);
  product("product_tf32", at::kFloat, half, half, half, "high");
  product("product_up", at::kBFloat16, s.rows, s.dim, s.features);
  product("product_down", at::kBFloat16, s.rows, s.features, s.dim);
  product("product_square", at::kBFloat16, s.rows, s.dim, s.dim);
}

// libtorch's, over four documents, with a quarter as many keys as queries. The cpu's has programs
// of its own.
void measure_attention(DeviceBench& bench, const Sizes& s) {
  if (!bench.on_gpu()) return;
  const int64_t tokens = s.rows / 4;
  const at::Tensor q = bench.numbers({s.rows, s.heads, s.head_dim});
  const at::Tensor k = bench.numbers({s.rows, s.heads / 4, s.head_dim});
  const at::Tensor v = bench.numbers({s.rows, s.heads / 4, s.head_dim});
  ops::AttentionContext context;
  context.cu_seqlens = at::arange(0, s.rows + 1, tokens, bench.options(at::kInt));
  context.max_seqlen = tokens;
  context.scale = 0.125;
  // Two products, of which the mask takes half; on the way back there are five.
  const double operations = 2.0 * static_cast<double>(s.rows * tokens * s.heads * s.head_dim);
  const auto way = ops::LibraryAttention::Flash;
  const ops::AttentionOutput out = ops::library_attention_forward(way, q, k, v, context);
  bench.compute("flash_attention_forward", operations,
                [&] { ops::library_attention_forward(way, q, k, v, context); });
  bench.compute("flash_attention_backward", 2.5 * operations,
                [&] { ops::library_attention_backward(way, q, q, k, v, out, context); });
}

void measure(const std::string& accelerator, double milliseconds, const std::string& only) {
  memory::install_allocators();
  const at::Device device = engine::open_device(accelerator);
  const Sizes& sizes = device.is_cuda() ? kGpu : kCpu;
  DeviceBench bench(device, milliseconds, only);
  measure_ceilings(bench, sizes);
  measure_layers(bench, sizes);
  measure_attention(bench, sizes);
  measure_updates(bench, sizes);
}

}  // namespace
}  // namespace snug::bench

int main(int argc, char** argv) {
  try {
    snug::bench::measure(argc > 1 ? argv[1] : "cuda", argc > 2 ? std::stod(argv[2]) : 60,
                         argc > 3 ? argv[3] : "");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
  return 0;
}
