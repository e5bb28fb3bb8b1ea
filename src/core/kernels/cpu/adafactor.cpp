// Rows are shared out in slabs whose borders do not depend on the number of threads. A slab adds
// its columns' squares into a row of the workspace; these rows and the slabs' norms are added in
// order.
// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/optimizers.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "base/error.h"
#include "core/kernels/cpu/isa.h"
#include "core/kernels/cpu/parallel.h"
#include "core/kernels/cpu/simd/kernels.h"
#include "core/kernels/random_key.h"

namespace snug::kernels {
namespace cpu {
namespace {

constexpr int64_t kMostSlabs = 64;

struct Slabs {
  Slabs(int64_t rows, int64_t cols)
      : rows(rows),
        height(std::max({int64_t{1}, (rows + kMostSlabs - 1) / kMostSlabs,
                         kBlockElements / std::max<int64_t>(1, cols)})),
        count((rows + height - 1) / height) {}

  // body(slab, begin, end) for each slab's rows.
  template <class Body>
  void run(int num_threads, const Body& body) const {
    parallel_blocks(count, num_threads, [&](int64_t slab) {
      body(slab, slab * height, std::min(rows, (slab + 1) * height));
    });
  }

  int64_t rows, height, count;
};

double sum(const std::vector<double>& parts) {
  return std::accumulate(parts.begin(), parts.end(), 0.0);
}

// The slabs' sums of squares become the columns' new means.
void move_col_var(const AdafactorTensor& t, const Slabs& slabs, const float* col_sums,
                  float new_share, int num_threads) {
  const auto rows = static_cast<float>(t.rows);
  parallel_ranges(t.cols, slabs.count, num_threads, [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) {
      float total = 0;
      for (int64_t slab = 0; slab < slabs.count; ++slab) total += col_sums[slab * t.cols + c];
      t.col_var[c] += (total / rows - t.col_var[c]) * new_share;
    }
  });
}

}  // namespace

void adafactor_step(const AdafactorTensor& t, const AdafactorOptions& o, void* workspace) {
  SNUG_CHECK(o.step >= 1, "Adafactor step {}; the first is 1", o.step);
  SNUG_CHECK(t.count == t.rows * t.cols && (t.row_var != nullptr || t.rows == 1),
             "Adafactor of {} elements as {} rows of {}", t.count, t.rows, t.cols);
  if (t.count == 0) return;
  const Slabs slabs(t.rows, t.cols);
  const auto count = static_cast<double>(t.count), step = static_cast<double>(o.step);
  AdafactorFactors f = {.new_share = static_cast<float>(std::pow(step, o.beta2_decay)),
                        .smallest = static_cast<float>(o.eps1 * o.eps1),
                        .decay = static_cast<float>(1 - o.lr * o.weight_decay),
                        .grad_scale = o.grad_scale,
                        .stochastic = o.stochastic_rounding,
                        .random_key = random_key(o.seed, o.step, t.tensor_id)};
  auto* col_sums = static_cast<float*>(workspace);
  std::vector<double> parts(static_cast<size_t>(slabs.count));

  const auto moments = SNUG_FOR_ISA(adafactor_moments_rows);
  slabs.run(o.num_threads, [&](int64_t slab, int64_t begin, int64_t end) {
    float* sums = col_sums + slab * t.cols;
    std::fill(sums, sums + t.cols, 0.0f);
    parts[static_cast<size_t>(slab)] = moments(t, f, sums, begin, end);
  });
  const double param_rms = std::sqrt(sum(parts) / count);
  move_col_var(t, slabs, col_sums, f.new_share, o.num_threads);
  if (t.row_var != nullptr) {
    const double mean =
        std::accumulate(t.row_var, t.row_var + t.rows, 0.0) / static_cast<double>(t.rows);
    f.row_scale = static_cast<float>(1 / std::max(mean, o.eps1));
  }

  const auto update_norm = SNUG_FOR_ISA(adafactor_update_norm_rows);
  slabs.run(o.num_threads, [&](int64_t slab, int64_t begin, int64_t end) {
    parts[static_cast<size_t>(slab)] = update_norm(t, f, begin, end);
  });
  const double update_rms = std::sqrt(sum(parts) / count);
  const double alpha = std::max(o.eps2, param_rms) * std::min(o.lr, 1 / std::sqrt(step));
  f.step_size = static_cast<float>(alpha / std::max(1.0, update_rms / o.d));

  const auto update = SNUG_FOR_ISA(adafactor_update_rows);
  slabs.run(o.num_threads, [&](int64_t, int64_t begin, int64_t end) { update(t, f, begin, end); });
}

}  // namespace cpu

AdafactorSlabs adafactor_slabs(int64_t rows, int64_t cols) {
  const cpu::Slabs slabs(rows, cols);
  return {slabs.height, slabs.count};
}

int64_t adafactor_workspace_bytes(int64_t rows, int64_t cols) {
  return cpu::Slabs(rows, cols).count * cols * static_cast<int64_t>(sizeof(float));
}

}  // namespace snug::kernels
