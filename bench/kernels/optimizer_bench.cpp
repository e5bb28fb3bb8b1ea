// Host optimizers beside a copy, in the same rounds: bytes that the optimizer must read and write
// over its time, and that rate as a share of the copy's. Two shares: of the copy's plain bytes
// (what it reads and writes), and of its traffic, since a plain copy's stores read their lines
// first and an update in place does not pay twice.
//   optimizer_bench [million parameters, default 134.5] [rounds, default 7] [threads, default all]
// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "core/kernels/cpu/elementwise.h"
#include "core/kernels/cpu/parallel.h"
#include "core/kernels/optimizers.h"
#include "kernels/bandwidth_timing.h"

namespace {

using namespace snug::kernels;
using namespace snug::kernels::cpu;
using snug::bench::Entry;
using snug::bench::Memory;

// The first entry is the copy.
void measure(const char* title, std::vector<Entry> entries, int rounds, int threads) {
  snug::bench::run_rounds(entries, rounds, threads);
  const double copy = entries[0].rate();
  std::printf("%-34s %10s %9s %8s %11s\n", title, "ms", "GB/s", "of copy", "of traffic");
  for (const Entry& entry : entries) {
    const double rate = entry.rate();
    std::printf("  %-32s %10.2f %9.2f %6.0f %% %9.0f %%\n", entry.name.c_str(),
                entry.best_seconds * 1e3, rate / 1e9, 100 * rate / copy, 100 * rate / (1.5 * copy));
  }
  std::fflush(stdout);
}

void optimizers(const char* title, Scalar type, int64_t count, int rounds, int threads) {
  Memory p(type, count, 0.5f, threads), g(type, count, 1e-3f, threads);
  Memory m(Scalar::F32, count, 1e-3f, threads), v(Scalar::F32, count, 1e-5f, threads);
  const int64_t blocks = (count + kQuantizedBlock - 1) / kQuantizedBlock;
  Memory m_absmax(Scalar::F32, blocks, 0.0f, 1), v_absmax(Scalar::F32, blocks, 0.0f, 1);
  const int64_t cols = 1536, rows = count / cols;
  std::vector<float> row_var(static_cast<size_t>(rows)), col_var(static_cast<size_t>(cols));
  std::vector<char> workspace(static_cast<size_t>(adafactor_workspace_bytes(rows, cols)));

  const auto n = static_cast<double>(count), size = static_cast<double>(scalar_bytes(type));
  const auto adamw = [&](Scalar state, bool stochastic) {
    const AdamWTensor tensor = {.count = count,
                                .param = p.get(),
                                .grad = g.get(),
                                .exp_avg = m.get(),
                                .exp_avg_sq = v.get(),
                                .param_type = type,
                                .grad_type = type,
                                .state_type = state};
    adamw_step({&tensor, 1},
               {.lr = 1e-5, .step = 5, .stochastic_rounding = stochastic, .num_threads = threads});
  };
  std::vector<Entry> entries = {
      {"copy", 8 * n,
       [&] {
         parallel_ranges(count, 1, threads, [&](int64_t begin, int64_t end) {
           cast(v.floats() + begin, Scalar::F32, m.floats() + begin, Scalar::F32, end - begin, 1);
         });
       }},
      {"memcpy", 8 * n,
       [&] {
         parallel_ranges(count, 1, threads, [&](int64_t begin, int64_t end) {
           std::memcpy(m.floats() + begin, v.floats() + begin,
                       static_cast<size_t>(4 * (end - begin)));
         });
       }},
      {"x *= a", 8 * n, [&] { scale(m.get(), Scalar::F32, 0.9999f, count, threads); }},
      {"x += a y", 12 * n,
       [&] { accumulate(m.get(), Scalar::F32, v.get(), Scalar::F32, count, 1e-5f, threads); }},
      {"adamw, float32 states", (3 * size + 16) * n, [&] { adamw(Scalar::F32, false); }}};
  if (type == Scalar::BF16) {
    entries.push_back({"adamw, float32 states, stochastic", (3 * size + 16) * n,
                       [&] { adamw(Scalar::F32, true); }});
    entries.push_back(
        {"adamw, bfloat16 states", (3 * size + 8) * n, [&] { adamw(Scalar::BF16, false); }});
  }
  entries.push_back(
      {"adamw_8bit", (3 * size + 4 + 16.0 / kQuantizedBlock) * n, [&] {
         const AdamW8bitTensor tensor = {.count = count,
                                         .param = p.get(),
                                         .grad = g.get(),
                                         .exp_avg = m.bytes(),
                                         .exp_avg_sq = v.bytes(),
                                         .exp_avg_absmax = m_absmax.floats(),
                                         .exp_avg_sq_absmax = v_absmax.floats(),
                                         .param_type = type,
                                         .grad_type = type};
         adamw_8bit_step({&tensor, 1}, {.lr = 1e-5, .step = 5, .num_threads = threads});
       }});
  entries.push_back({"lion, float32 state", (3 * size + 8) * n, [&] {
                       const ElementTensor<1> tensor = {.count = count,
                                                        .param = p.get(),
                                                        .grad = g.get(),
                                                        .states = {m.get()},
                                                        .param_type = type,
                                                        .grad_type = type};
                       element_step<Lion>({&tensor, 1}, {.lr = 1e-5, .num_threads = threads});
                     }});
  entries.push_back({"adafactor", 6 * size * n, [&] {
                       adafactor_step({.count = rows * cols,
                                       .rows = rows,
                                       .cols = cols,
                                       .param = p.get(),
                                       .grad = g.get(),
                                       .row_var = row_var.data(),
                                       .col_var = col_var.data(),
                                       .param_type = type,
                                       .grad_type = type},
                                      {.lr = 1e-5, .step = 5, .num_threads = threads},
                                      workspace.data());
                     }});
  entries.push_back({"sgd", 3 * size * n, [&] {
                       const ElementTensor<1> tensor = {.count = count,
                                                        .param = p.get(),
                                                        .grad = g.get(),
                                                        .param_type = type,
                                                        .grad_type = type};
                       element_step<Sgd>({&tensor, 1}, {.lr = 1e-5, .num_threads = threads});
                     }});
  measure(title, std::move(entries), rounds, threads);
}

}  // namespace

int main(int argc, char** argv) {
  const double millions = argc > 1 ? std::atof(argv[1]) : 134.515008;
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 7;
  const int threads = argc > 3 ? std::atoi(argv[3]) : 0;
  const auto count = static_cast<int64_t>(millions * 1e6);
  optimizers("float32 weights and gradients", Scalar::F32, count, rounds, threads);
  optimizers("bfloat16 weights and gradients", Scalar::BF16, count, rounds, threads);
}
