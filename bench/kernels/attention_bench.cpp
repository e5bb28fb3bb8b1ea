// Attention forward and backward over packed documents: milliseconds and share of the bound.
// Usage: attention_bench [seconds a shape].
// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/cpu/linalg/attention/attention.h"

#include <fmt/core.h>

#include <cmath>
#include <cstdlib>
#include <memory>
#include <random>
#include <vector>

#include "kernels/gemm_timing.h"

namespace {

using namespace snug::kernels;
using namespace snug::kernels::cpu;
using snug::bench::AttentionShape;

// Scores of a real spread, since exp and the running maximum depend on them.
std::vector<uint32_t> storage(int64_t elements, Scalar type) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<uint32_t> words(size_t(elements * scalar_bytes(type) / 4 + 1));
  for (uint32_t& word : words) {
    const float value = normal(random);
    __builtin_memcpy(&word, &value, 4);
    if (type != Scalar::F32) word = (word & 0xffff0000) | word >> 16;
  }
  return words;
}

void measure(const AttentionShape& s, Scalar type, double budget) {
  const int64_t tokens = s.tokens * s.documents, wide = s.heads * s.dim,
                narrow = s.kv_heads * s.dim;
  std::vector<int32_t> starts;
  for (int64_t i = 0; i <= s.documents; ++i) starts.push_back(int32_t(i * s.tokens));
  auto q = storage(tokens * wide, type), d_out = q, out = q, dq = q;
  auto k = storage(tokens * narrow, type), v = k, dk = k, dv = k;
  std::vector<float> lse(size_t(tokens * s.heads));
  AttentionArgs args{
      .num_tokens = tokens, .num_heads = s.heads, .num_kv_heads = s.kv_heads, .head_dim = s.dim};
  args.num_documents = s.documents, args.cu_seqlens = starts.data(), args.type = type;
  args.q = q.data(), args.k = k.data(), args.v = v.data(), args.out = out.data();
  args.q_stride = wide, args.k_stride = args.v_stride = narrow;
  args.scale = 1.f / std::sqrt(float(s.dim)), args.lse = lse.data();
  args.causal = s.causal;
  const auto biases = storage(s.buckets * s.heads, Scalar::F32);
  std::vector<float> d_biases(size_t(s.buckets * s.heads));
  args.bias = {.num_buckets = s.buckets,
               .data = biases.data(),
               .max_distance = 128,
               .both_directions = !s.causal};
  args.dropout = {.probability = s.dropout, .key = 1};
  const int64_t bytes =
      std::max(attention_workspace_bytes(args, false), attention_workspace_bytes(args, true));
  const std::unique_ptr<void, decltype(&std::free)> workspace(
      std::aligned_alloc(64, size_t((bytes + 63) / 64 * 64)), &std::free);
  const auto forward =
      snug::bench::best_time(budget, [&] { attention_forward(args, workspace.get()); });
  const auto backward = snug::bench::best_time(budget, [&] {
    attention_backward({args, d_out.data(), dq.data(), dk.data(), dv.data(),
                        s.buckets > 0 ? d_biases.data() : nullptr},
                       workspace.get());
  });
  const double flops = snug::bench::attention_flops(s);
  fmt::print(
      "{:5} tokens x {} {:2}/{} heads of {:3}{} {:>5}  forward {:7.2f} ms {:5.1f} %  "
      "backward {:7.2f} ms {:5.1f} %  {:6.1f} MiB\n",
      s.tokens, s.documents, s.heads, s.kv_heads, s.dim, snug::bench::extras(s),
      type == Scalar::F32 ? "f32" : "bf16", forward.seconds * 1e3,
      100 * flops / forward.seconds / forward.bound, backward.seconds * 1e3,
      250 * flops / backward.seconds / backward.bound, double(bytes) / (1 << 20));
}

}  // namespace

int main(int argc, char** argv) {
  const double budget = argc > 1 ? std::atof(argv[1]) : 0.5;
  fmt::print("{}: {:.1f} GFLOP/s\n", cpu_summary(), cpu_peak_flops_estimate() * 1e-9);
  for (const AttentionShape& shape : snug::bench::kAttentionShapes) {
    for (Scalar type : {Scalar::F32, Scalar::BF16}) measure(shape, type, budget);
  }
}
