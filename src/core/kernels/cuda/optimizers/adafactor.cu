// Seven small launches a tensor, each of which reads the matrix at most once: a block a row where
// sums run over columns, a thread a column (in slabs of rows) where they run over rows, and one
// block for the norms. All sums have a fixed order.
// Bytes an element, P of the weight's type (read: 4 where there is a master), G of the gradient's:
//   sum_rows: reads P + G
//   sum_columns: reads G
//   move_columns: reads 4 a column and slab, and moves 4 a column
//   note_norms: reads 12 a row
//   sum_updates: reads G, writes 8 a row
//   note_step_size: reads 8 a row
//   update: reads P + G, writes P (with a master P + 4)
// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/cuda/optimizers/optimizers.h"

#include <cmath>

#include "base/error.h"
#include "core/kernels/cuda/rounding.cuh"
#include "core/kernels/random_key.h"

namespace snug::kernels::cuda {
namespace {

constexpr int kThreads = 256;

// What one launch leaves for the next.
struct Norms {
  double param_rms;
  float row_scale;  // makes row_var * col_var the second moment
  float step_size;
};

struct Work {
  double* parts;  // one a row
  Norms* norms;
  float* col_sums;  // (slabs, C)
};

struct Factors {
  float new_share;
  float smallest;  // of a second moment
  float decay;
  float grad_scale;
  bool stochastic;
  uint64_t random_key;
  double alpha;  // min(lr, 1 / sqrt(t))
  double eps1;
  double eps2;
  double d;
};

template <class P>
__device__ float weight(const AdafactorTensor& t, int64_t i) {
  return t.master != nullptr ? t.master[i] : to_float(static_cast<const P*>(t.param)[i]);
}

template <class G>
__device__ float gradient(const AdafactorTensor& t, const Factors& f, int64_t i) {
  return to_float(static_cast<const G*>(t.grad)[i]) * f.grad_scale;
}

// The second moment's factor that a row's elements share.
__device__ float row_factor(const AdafactorTensor& t, const Norms& norms, int64_t row) {
  return t.row_var != nullptr ? t.row_var[row] * norms.row_scale : 1.f;
}

template <class P, class G>
__global__ void __launch_bounds__(kThreads) sum_rows(AdafactorTensor t, Factors f, Work work) {
  const int64_t row = blockIdx.x;
  double gradients = 0, weights = 0;
  for (int64_t c = threadIdx.x; c < t.cols; c += kThreads) {
    const double g = gradient<G>(t, f, row * t.cols + c), p = weight<P>(t, row * t.cols + c);
    gradients += g * g;
    weights += p * p;
  }
  gradients = reduce_block(gradients, 0.0, Add{});
  weights = reduce_block(weights, 0.0, Add{});
  if (threadIdx.x != 0) return;
  work.parts[row] = weights;
  if (t.row_var == nullptr) return;
  const auto mean = static_cast<float>(gradients / static_cast<double>(t.cols));
  t.row_var[row] += (mean - t.row_var[row]) * f.new_share;
}

template <class G>
__global__ void __launch_bounds__(kThreads)
    sum_columns(AdafactorTensor t, Factors f, Work work, int64_t height) {
  const int64_t c = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (c >= t.cols) return;
  const int64_t begin = blockIdx.y * height, end = min(begin + height, t.rows);
  float sum = 0;
  for (int64_t row = begin; row < end; ++row) {
    const float g = gradient<G>(t, f, row * t.cols + c);
    sum += g * g;
  }
  work.col_sums[blockIdx.y * t.cols + c] = sum;
}

__global__ void __launch_bounds__(kThreads)
    move_columns(AdafactorTensor t, Factors f, Work work, int64_t slabs) {
  const int64_t c = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (c >= t.cols) return;
  float total = 0;
  for (int64_t slab = 0; slab < slabs; ++slab) total += work.col_sums[slab * t.cols + c];
  t.col_var[c] += (total / static_cast<float>(t.rows) - t.col_var[c]) * f.new_share;
}

// The sum of an array by the one block there is.
template <class T>
__device__ double sum_of(const T* values, int64_t count) {
  double own = 0;
  for (int64_t i = threadIdx.x; i < count; i += blockDim.x) own += values[i];
  return reduce_block(own, 0.0, Add{});
}

__global__ void __launch_bounds__(kMostThreads)
    note_norms(AdafactorTensor t, Factors f, Work work) {
  const double weights = sum_of(work.parts, t.rows);
  const double rows = t.row_var != nullptr ? sum_of(t.row_var, t.rows) : 0.0;
  if (threadIdx.x != 0) return;
  work.norms->param_rms = sqrt(weights / static_cast<double>(t.count));
  work.norms->row_scale = static_cast<float>(1 / fmax(rows / static_cast<double>(t.rows), f.eps1));
}

template <class G>
__global__ void __launch_bounds__(kThreads) sum_updates(AdafactorTensor t, Factors f, Work work) {
  const int64_t row = blockIdx.x;
  const float factor = row_factor(t, *work.norms, row);
  double squares = 0;
  for (int64_t c = threadIdx.x; c < t.cols; c += kThreads) {
    const float g = gradient<G>(t, f, row * t.cols + c);
    squares += g * g / fmaxf(t.col_var[c] * factor, f.smallest);
  }
  squares = reduce_block(squares, 0.0, Add{});
  if (threadIdx.x == 0) work.parts[row] = squares;
}

__global__ void __launch_bounds__(kMostThreads)
    note_step_size(AdafactorTensor t, Factors f, Work work) {
  const double squares = sum_of(work.parts, t.rows);
  if (threadIdx.x != 0) return;
  const double update_rms = sqrt(squares / static_cast<double>(t.count));
  const double alpha = fmax(f.eps2, work.norms->param_rms) * f.alpha;
  work.norms->step_size = static_cast<float>(alpha / fmax(1.0, update_rms / f.d));
}

template <class P, class G>
__global__ void __launch_bounds__(kThreads) update(AdafactorTensor t, Factors f, Work work) {
  const int64_t row = blockIdx.x;
  const float factor = row_factor(t, *work.norms, row), step_size = work.norms->step_size;
  auto* param = static_cast<P*>(t.param);
  for (int64_t c = threadIdx.x; c < t.cols; c += kThreads) {
    const int64_t i = row * t.cols + c;
    const float root = sqrtf(fmaxf(t.col_var[c] * factor, f.smallest));
    const float p = weight<P>(t, i) * f.decay - step_size * (gradient<G>(t, f, i) / root);
    const bool by_chance = f.stochastic && t.master == nullptr;
    const uint32_t random = by_chance ? random_bits(f.random_key, i) : 0;
    param[i] = from_float<P>(rounded<P>(p, by_chance, random));
    if (t.master != nullptr) t.master[i] = p;
  }
}

template <class P, class G>
void step(const AdafactorTensor& t, const Factors& f, const Work& work, cudaStream_t stream) {
  const AdafactorSlabs slabs = adafactor_slabs(t.rows, t.cols);
  const int64_t rows = t.rows, columns = blocks_for(t.cols, kThreads);
  launch("adafactor_step/sum_rows", sum_rows<P, G>, rows, kThreads, 0, stream, t, f, work);
  launch("adafactor_step/sum_columns", sum_columns<G>, Grid(columns, slabs.count), kThreads, 0,
         stream, t, f, work, slabs.height);
  launch("adafactor_step/move_columns", move_columns, columns, kThreads, 0, stream, t, f, work,
         slabs.count);
  launch("adafactor_step/note_norms", note_norms, 1, kMostThreads, 0, stream, t, f, work);
  launch("adafactor_step/sum_updates", sum_updates<G>, rows, kThreads, 0, stream, t, f, work);
  launch("adafactor_step/note_step_size", note_step_size, 1, kMostThreads, 0, stream, t, f, work);
  launch("adafactor_step/update", update<P, G>, rows, kThreads, 0, stream, t, f, work);
}

}  // namespace

void adafactor_step(const AdafactorTensor& t, const AdafactorOptions& o, void* workspace,
                    cudaStream_t stream) {
  SNUG_CHECK(o.step >= 1, "Adafactor step {}; the first is 1", o.step);
  SNUG_CHECK(t.count == t.rows * t.cols && (t.row_var != nullptr || t.rows == 1),
             "Adafactor of {} elements as {} rows of {}", t.count, t.rows, t.cols);
  if (t.count == 0) return;
  const auto number = static_cast<double>(o.step);
  const Factors factors = {static_cast<float>(std::pow(number, o.beta2_decay)),
                           static_cast<float>(o.eps1 * o.eps1),
                           static_cast<float>(1 - o.lr * o.weight_decay),
                           o.grad_scale,
                           o.stochastic_rounding,
                           random_key(o.seed, o.step, t.tensor_id),
                           std::min(o.lr, 1 / std::sqrt(number)),
                           o.eps1,
                           o.eps2,
                           o.d};
  static_assert(sizeof(Norms) <= kAdafactorNormsBytes, "the workspace has room for them");
  auto* parts = static_cast<double*>(workspace);
  auto* norms = reinterpret_cast<Norms*>(parts + t.rows);
  auto* col_sums = reinterpret_cast<float*>(reinterpret_cast<char*>(norms) + kAdafactorNormsBytes);
  with_type(t.param_type, [&](auto p) {
    with_type(t.grad_type, [&](auto g) {
      step<decltype(p), decltype(g)>(t, factors, {parts, norms, col_sums}, stream);
    });
  });
}

}  // namespace snug::kernels::cuda
