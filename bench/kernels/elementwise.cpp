// Bandwidth of the memory-bound operators beside that of copying, measured in the same rounds: a
// machine's speed drifts more than the kernels differ. Bytes are those the operator must read and
// write; a plain copy's stores also read their lines first, which is not counted, so that an
// operator in place can be faster than "copy".
//   bench_elementwise [million parameters, default 134.5] [rounds, default 5] [threads, default
//   all]
// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "core/kernels/activation.h"
#include "core/kernels/cpu/elementwise.h"
#include "core/kernels/cpu/parallel.h"
#include "core/kernels/cpu/rope_tables.h"
#include "core/kernels/cross_entropy.h"
#include "core/kernels/embedding.h"
#include "core/kernels/optimizers.h"
#include "core/kernels/rms_norm.h"
#include "core/kernels/rope.h"
#include "kernels/bandwidth_timing.h"

namespace {

using namespace snug::kernels;
using namespace snug::kernels::cpu;
using snug::bench::Entry;
using snug::bench::Memory;

void measure(const char* title, std::vector<Entry> entries, int rounds, int threads) {
  snug::bench::run_rounds(entries, rounds, threads);
  std::printf("%s\n", title);
  const double copy = entries[0].rate();
  for (const Entry& entry : entries) {
    const double rate = entry.rate();
    std::printf("  %-44s %9.2f ms %7.2f GB/s %5.0f %% of copy\n", entry.name.c_str(),
                entry.best_seconds * 1e3, rate / 1e9, 100 * rate / copy);
  }
  std::fflush(stdout);
}

void parallel_memcpy(void* to, const void* from, int64_t bytes, int threads) {
  parallel_ranges(bytes / 4, 1, threads, [&](int64_t begin, int64_t end) {
    std::memcpy(static_cast<char*>(to) + 4 * begin, static_cast<const char*>(from) + 4 * begin,
                4 * (end - begin));
  });
}

Entry adamw(const char* name, Scalar param, Scalar state, Memory& p, Memory& g, Memory& m,
            Memory& v, int64_t count, bool stochastic, int threads) {
  const AdamWTensor tensor = {.count = count,
                              .param = p.get(),
                              .grad = g.get(),
                              .exp_avg = m.get(),
                              .exp_avg_sq = v.get(),
                              .param_type = param,
                              .grad_type = param,
                              .state_type = state};
  const double bytes = static_cast<double>(3 * scalar_bytes(param) + 4 * scalar_bytes(state));
  return {name, bytes * static_cast<double>(count), [=] {
            adamw_step({&tensor, 1},
                       {.step = 5, .stochastic_rounding = stochastic, .num_threads = threads});
          }};
}

void optimizers(int64_t count, int rounds, int threads) {
  Memory p(Scalar::F32, count, 0.5f), g(Scalar::F32, count, 1e-3f);
  Memory m(Scalar::F32, count, 1e-3f), v(Scalar::F32, count, 1e-5f);
  const auto n = static_cast<double>(count);
  measure(
      "parameters larger than every cache, float32",
      {{"copy (loop)", 8 * n,
        [&] { cast(g.get(), Scalar::F32, m.get(), Scalar::F32, count, threads); }},
       {"memcpy", 8 * n, [&] { parallel_memcpy(m.get(), g.get(), 4 * count, threads); }},
       adamw("adamw: float32", Scalar::F32, Scalar::F32, p, g, m, v, count, false, threads),
       {"sgd with momentum", 20 * n,
        [&] {
          const ElementTensor<1> tensor = {
              .count = count, .param = p.get(), .grad = g.get(), .states = {m.get()}};
          element_step<Sgd>({&tensor, 1}, {.lr = 1e-5, .momentum = 0.9, .num_threads = threads});
        }},
       {"sum of squares", 4 * n,
        [&] {
          const TensorView view = {count, g.get(), Scalar::F32};
          if (!sum_of_squares({&view, 1}, threads).finite) std::abort();
        }},
       {"accumulate", 12 * n,
        [&] { accumulate(v.get(), Scalar::F32, g.get(), Scalar::F32, count, 1e-6f, threads); }},
       {"cast float32 to bfloat16", 6 * n,
        [&] { cast(g.get(), Scalar::F32, p.get(), Scalar::BF16, count, threads); }}},
      rounds, threads);
}

void optimizers_bf16(int64_t count, int rounds, int threads) {
  const Scalar b = Scalar::BF16;
  Memory p(b, count, 0.5f), g(b, count, 1e-3f);
  Memory m(Scalar::F32, count, 1e-3f), v(Scalar::F32, count, 1e-5f);
  const auto n = static_cast<double>(count);
  measure("parameters larger than every cache, bfloat16",
          {{"copy (loop)", 8 * n,
            [&] { cast(v.get(), Scalar::F32, m.get(), Scalar::F32, count, threads); }},
           adamw("adamw: bf16, float32 states", b, Scalar::F32, p, g, m, v, count, false, threads),
           adamw("adamw: bf16, float32 states, stochastic", b, Scalar::F32, p, g, m, v, count, true,
                 threads),
           adamw("adamw: bf16, bf16 states", b, b, p, g, m, v, count, false, threads),
           adamw("adamw: bf16, bf16 states, stochastic", b, b, p, g, m, v, count, true, threads)},
          rounds, threads);
}

// SmolLM2-135M's widths at 4096 tokens: 9 heads of 64, 1536 intermediate, 49152 words.
void activations(Scalar type, const char* title, int rounds, int threads) {
  const int64_t rows = 4096, dim = 576, features = 1536, vocabulary = 49152, chunk = 256;
  Memory x(type, rows * features, 0.3f), y(type, rows * features, 0.2f);
  Memory z(type, rows * features, 0.1f), weight(type, dim, 1.0f);
  Memory rstd(Scalar::F32, rows, 1.0f), dweight(Scalar::F32, dim, 0.0f);
  Memory logits(Scalar::F32, chunk * vocabulary, 0.1f);
  const RopeTables tables = build_rope_tables({}, 64, rows);
  std::vector<int32_t> ids(rows), targets(chunk, 7);
  for (int64_t n = 0; n < rows; ++n) ids[n] = static_cast<int32_t>(n);
  const auto size = static_cast<double>(scalar_bytes(type));
  const double wide = size * rows * features, narrow = size * rows * dim;
  measure(title,
          {{"copy (loop)", 2 * wide,
            [&] { cast(x.get(), type, y.get(), type, rows * features, threads); }},
           {"rms_norm forward", 2 * narrow,
            [&] {
              rms_norm_forward({.type = type,
                                .weight_type = type,
                                .rows = rows,
                                .dim = dim,
                                .x = x.get(),
                                .weight = weight.get(),
                                .y = z.get(),
                                .rstd = rstd.floats(),
                                .num_threads = threads});
            }},
           {"rms_norm forward with residual", 4 * narrow,
            [&] {
              rms_norm_forward({.type = type,
                                .weight_type = type,
                                .rows = rows,
                                .dim = dim,
                                .x = x.get(),
                                .residual = y.get(),
                                .sum = z.get(),
                                .weight = weight.get(),
                                .y = z.get(),
                                .num_threads = threads});
            }},
           {"rms_norm backward", 4 * narrow,
            [&] {
              rms_norm_backward({.type = type,
                                 .weight_type = type,
                                 .rows = rows,
                                 .dim = dim,
                                 .dy = y.get(),
                                 .x = x.get(),
                                 .weight = weight.get(),
                                 .rstd = rstd.floats(),
                                 .d_residual = y.get(),
                                 .dx = z.get(),
                                 .dweight = {.data = dweight.floats()},
                                 .num_threads = threads});
            }},
           {"rope", 2 * narrow,
            [&] {
              rope_apply({.type = type,
                          .tokens = rows,
                          .heads = 9,
                          .head_dim = 64,
                          .x = z.get(),
                          .positions = ids.data(),
                          .cos = tables.cos.data(),
                          .sin = tables.sin.data(),
                          .max_positions = rows,
                          .num_threads = threads});
            }},
           {"swiglu forward", 3 * wide,
            [&] {
              gated_forward({.type = type,
                             .rows = rows,
                             .features = features,
                             .gate = x.get(),
                             .up = y.get(),
                             .y = z.get(),
                             .num_threads = threads});
            }},
           {"swiglu backward", 5 * wide,
            [&] {
              gated_backward({.type = type,
                              .rows = rows,
                              .features = features,
                              .dy = z.get(),
                              .gate = x.get(),
                              .up = y.get(),
                              .dgate = x.get(),
                              .dup = y.get(),
                              .num_threads = threads});
            }},
           {"cross_entropy with gradient, float32 in place", 8.0 * chunk * vocabulary,
            [&] {
              cross_entropy({.rows = chunk,
                             .vocabulary = vocabulary,
                             .logits = logits.floats(),
                             .targets = targets.data(),
                             .num_threads = threads});
            }}},
          rounds, threads);
}

}  // namespace

int main(int argc, char** argv) {
  const double millions = argc > 1 ? std::atof(argv[1]) : 134.515008;
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 5;
  const int threads = argc > 3 ? std::atoi(argv[3]) : 0;
  const auto count = static_cast<int64_t>(millions * 1e6);
  optimizers(count, rounds, threads);
  optimizers_bf16(count, rounds, threads);
  activations(Scalar::F32, "activations of 4096 tokens, float32", rounds, threads);
  activations(Scalar::BF16, "activations of 4096 tokens, bfloat16", rounds, threads);
}
