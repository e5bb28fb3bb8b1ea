// One block a row. The first sweep keeps a running maximum and the sum relative to it in each
// thread; the second, which finds much of the row in the second-level cache, writes the gradient.
// The rows' losses are added by one block in a fixed order.
// Bytes a logit, G those of the gradient's type, without what the second-level cache serves:
//   one_row: reads 4, writes G
//   one_taught_row: reads 4, writes G
//   sums_of_part: reads 4
//   one_row_of_parts: reads 4, writes G
//   one_taught_row_of_parts: reads 4, writes G
//   add_losses: reads 12 a row
//   logits_of_teacher: reads 8 and writes 4 for each of the teacher's tokens
// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/cuda/operators.h"

#include <algorithm>

#include "core/kernels/cuda/elements.cuh"
#include "core/kernels/divergence.h"

namespace snug::kernels::cuda {
namespace {

constexpr int kSumThreads = 256;
// Of a block whose row has a teacher: divergences take more registers than 1024 threads have.
constexpr int kTaughtThreads = 256;

template <class G>
struct Rows {
  float* logits;
  const int32_t* targets;
  G* gradient;
  double* losses;  // (R)
  float* row_loss;
  const float* row_scale;
  int64_t vocabulary;
  int64_t first;        // the id of the first column
  int64_t all_columns;  // of all parts of the vocabulary
  int64_t logits_stride;
  int64_t gradient_stride;
  int32_t ignore_index;
  float scale;
  float smoothing;
  float z_loss;
  bool need_gradient;
  int64_t top_k;
  const float* teacher;
  const float* at_teachers;
  float target_weight;
  float beta;
};

struct RowSums {
  float maximum;
  float exponentials;  // of x - maximum
  float logits;
};

__device__ RowSums sum_row(const float* x, int64_t count, bool with_logits) {
  RowSums own = {-INFINITY, 0.f, 0.f};
  for (int64_t i = threadIdx.x; i < count; i += blockDim.x) {
    const float v = x[i];
    if (with_logits) own.logits += v;
    if (v == -INFINITY) continue;
    if (!(v <= own.maximum)) {
      own.exponentials = moved(own.exponentials, own.maximum, v);
      own.maximum = v;
    }
    own.exponentials += expf(v - own.maximum);
  }
  RowSums row;
  row.maximum = reduce_block(own.maximum, -INFINITY, Max{});
  row.exponentials = reduce_block(moved(own.exponentials, own.maximum, row.maximum), 0.f, Add{});
  row.logits = with_logits ? reduce_block(own.logits, 0.f, Add{}) : 0.f;
  return row;
}

// A row's divergence from its teacher; see cpu/simd/cross_entropy.cpp.
struct Divergence {
  double value;
  float slope_of_others;
  float mean_slope;
};

// This model's probability of the teacher's token i.
template <class G>
__device__ float probability(const Rows<G>& a, int64_t i, const RowSums& sums) {
  return expf(a.at_teachers[blockIdx.x * a.top_k + i] - sums.maximum) / sums.exponentials;
}

template <class G>
__device__ Divergence divergence_of(const Rows<G>& a, const RowSums& sums) {
  const float* teacher = a.teacher + blockIdx.x * 2 * a.top_k;
  double value = 0, mean_slope = 0, teachers = 0, own = 0;
  for (int64_t i = threadIdx.x; i < a.top_k; i += blockDim.x) {
    if (teacher[i] < 0) continue;
    const float p = expf(teacher[a.top_k + i]), q = probability(a, i, sums);
    const auto term = divergence_term(p, q, a.beta);
    value += term.value;
    mean_slope += term.weighted_slope;
    teachers += p;
    own += q;
  }
  const auto others = static_cast<float>(all_others(reduce_block(own, 0.0, Add{})));
  const auto teachers_others = static_cast<float>(all_others(reduce_block(teachers, 0.0, Add{})));
  const auto rest = divergence_term(teachers_others, others, a.beta);
  return {reduce_block(value, 0.0, Add{}) + rest.value, rest.weighted_slope / others,
          static_cast<float>(reduce_block(mean_slope, 0.0, Add{}) + rest.weighted_slope)};
}

template <class G>
__device__ void write_gradient(const Rows<G>& a, float scale, const float* x, G* out,
                               int32_t target, float lse, float of_divergence) {
  const float factor = scale * (1.f + 2.f * a.z_loss * lse) + of_divergence;
  const float share = scale * a.smoothing / static_cast<float>(a.all_columns);
  for (int64_t i = threadIdx.x; i < a.vocabulary; i += blockDim.x) {
    const float onehot = a.first + i == target ? scale * (1.f - a.smoothing) : 0.f;
    out[i] = from_float<G>(factor * expf(x[i] - lse) - onehot - share);
  }
}

// The gradient of the teacher's tokens, over that which they have as others have theirs. `weight`:
// the scale of cross-entropy.
template <class G>
__device__ void write_teachers(const Rows<G>& a, float scale, float weight, G* out, int32_t target,
                               float lse, const RowSums& sums, float mean_slope) {
  __syncthreads();  // all columns are written
  const float* teacher = a.teacher + blockIdx.x * 2 * a.top_k;
  const float of_softmax = weight * (1.f + 2.f * a.z_loss * lse) - scale * mean_slope;
  const float share = weight * a.smoothing / static_cast<float>(a.all_columns);
  for (int64_t i = threadIdx.x; i < a.top_k; i += blockDim.x) {
    const int64_t id = static_cast<int64_t>(teacher[i]), column = id - a.first;
    if (id < 0 || column < 0 || column >= a.vocabulary) continue;
    const float p = expf(teacher[a.top_k + i]), q = probability(a, i, sums);
    const float slope = divergence_term(p, q, a.beta).weighted_slope;
    const float onehot = id == target ? weight * (1.f - a.smoothing) : 0.f;
    out[column] = from_float<G>(q * of_softmax + scale * slope - onehot - share);
  }
}

template <class G>
__device__ void ignore_row(const Rows<G>& a, int64_t row, G* out) {
  if (threadIdx.x == 0) {
    a.losses[row] = 0;
    if (a.row_loss != nullptr) a.row_loss[row] = 0;
  }
  if (!a.need_gradient) return;
  for (int64_t i = threadIdx.x; i < a.vocabulary; i += blockDim.x) out[i] = from_float<G>(0.f);
}

// Loss of a row whose sums over all columns are known, and the gradient of the columns at hand.
template <bool kTaught, class G>
__device__ void finish_row(const Rows<G>& a, int64_t row, const float* x, G* out,
                           const RowSums& sums, float target_logit) {
  const float lse = logf(sums.exponentials) + sums.maximum;
  Divergence divergence = {0, 0.f, 0.f};
  if constexpr (kTaught) divergence = divergence_of(a, sums);
  if (threadIdx.x == 0) {
    const double mean = static_cast<double>(sums.logits) / static_cast<double>(a.all_columns);
    const double loss = lse - (1.0 - a.smoothing) * target_logit - a.smoothing * mean +
                        static_cast<double>(a.z_loss) * lse * lse;
    a.losses[row] = kTaught ? a.target_weight * loss + divergence.value : loss;
    if (a.row_loss != nullptr) a.row_loss[row] = static_cast<float>(loss);
  }
  if (!a.need_gradient) return;
  const float scale = a.row_scale == nullptr ? a.scale : a.scale * a.row_scale[blockIdx.x];
  const float weight = kTaught ? scale * a.target_weight : scale;
  const int32_t target = a.targets[blockIdx.x];
  write_gradient(a, weight, x, out, target, lse,
                 scale * (divergence.slope_of_others - divergence.mean_slope));
  if constexpr (kTaught)
    write_teachers(a, scale, weight, out, target, lse, sums, divergence.mean_slope);
}

template <bool kTaught, class G>
__device__ void do_row(const Rows<G>& a) {
  const int64_t row = blockIdx.x;
  const float* x = a.logits + row * a.logits_stride;
  G* out = a.gradient + row * a.gradient_stride;
  const int32_t target = a.targets[row];
  if (target == a.ignore_index) return ignore_row(a, row, out);
  const bool known = target >= 0 && target < a.vocabulary;
  const float target_logit = known ? x[target] : NAN;
  const RowSums sums = sum_row(x, a.vocabulary, a.smoothing != 0);  // ends with all having read x
  finish_row<kTaught>(a, row, x, out, sums, target_logit);
}

template <class G>
__global__ void __launch_bounds__(kMostThreads) one_row(Rows<G> a) {
  do_row<false>(a);
}

template <class G>
__global__ void __launch_bounds__(kTaughtThreads) one_taught_row(Rows<G> a) {
  do_row<true>(a);
}

__global__ void __launch_bounds__(kMostThreads)
    sums_of_part(Rows<float> a, CrossEntropyPartSums* all) {
  const int64_t row = blockIdx.x;
  const float* x = a.logits + row * a.logits_stride;
  const int64_t target = a.targets[row];
  const RowSums sums = sum_row(x, a.vocabulary, a.smoothing != 0);
  if (threadIdx.x != 0) return;
  const int64_t column = target - a.first;
  CrossEntropyPartSums& own = all[row];
  own.maximum = sums.maximum;
  own.exponentials = sums.exponentials;
  own.logits = sums.logits;
  own.target = column >= 0 && column < a.vocabulary ? x[column] : 0.f;
}

template <bool kTaught, class G>
__device__ void do_row_of_parts(const Rows<G>& a, const CrossEntropyPartSums* parts,
                                int64_t num_parts) {
  const int64_t row = blockIdx.x;
  const float* x = a.logits + row * a.logits_stride;
  G* out = a.gradient + row * a.gradient_stride;
  const int32_t target = a.targets[row];
  if (target == a.ignore_index) return ignore_row(a, row, out);
  // Every thread for itself: there are as many parts as devices share the layer.
  RowSums whole = {-INFINITY, 0.f, 0.f};
  float target_logit = target >= 0 && target < a.all_columns ? 0.f : NAN;
  const CrossEntropyPartSums* const end = parts + num_parts * gridDim.x;
  for (const auto* own = parts + row; own < end; own += gridDim.x) {
    const float maximum = static_cast<float>(own->maximum);
    if (!(maximum <= whole.maximum)) whole.maximum = maximum;
  }
  for (const auto* own = parts + row; own < end; own += gridDim.x) {
    whole.exponentials += moved(static_cast<float>(own->exponentials),
                                static_cast<float>(own->maximum), whole.maximum);
    whole.logits += static_cast<float>(own->logits);
    target_logit += static_cast<float>(own->target);
  }
  finish_row<kTaught>(a, row, x, out, whole, target_logit);
}

template <class G>
__global__ void __launch_bounds__(kMostThreads)
    one_row_of_parts(Rows<G> a, const CrossEntropyPartSums* parts, int64_t num_parts) {
  do_row_of_parts<false>(a, parts, num_parts);
}

template <class G>
__global__ void __launch_bounds__(kTaughtThreads)
    one_taught_row_of_parts(Rows<G> a, const CrossEntropyPartSums* parts, int64_t num_parts) {
  do_row_of_parts<true>(a, parts, num_parts);
}

// A block a row.
__global__ void __launch_bounds__(kSumThreads) logits_of_teacher(Rows<float> a, float* out) {
  const float* teacher = a.teacher + blockIdx.x * 2 * a.top_k;
  for (int64_t i = threadIdx.x; i < a.top_k; i += kSumThreads) {
    const int64_t column = static_cast<int64_t>(teacher[i]) - a.first;
    const bool has = teacher[i] >= 0 && column >= 0 && column < a.vocabulary;
    out[blockIdx.x * a.top_k + i] = has ? a.logits[blockIdx.x * a.logits_stride + column] : 0.f;
  }
}

__global__ void __launch_bounds__(kSumThreads)
    add_losses(const double* losses, const int32_t* targets, int64_t rows, int32_t ignore_index,
               CrossEntropyTotals* totals) {
  double sum = 0;
  int count = 0;
  for (int64_t row = threadIdx.x; row < rows; row += kSumThreads) {
    sum += losses[row];
    count += targets[row] != ignore_index;
  }
  sum = reduce_block(sum, 0.0, Add{});
  count = reduce_block(count, 0, Add{});
  if (threadIdx.x != 0) return;
  totals->loss_sum += sum;
  totals->count += count;
}

}  // namespace

int64_t cross_entropy_workspace_bytes(const CrossEntropy& args) {
  return args.rows * static_cast<int64_t>(sizeof(double));
}

namespace {

template <class G>
Rows<G> rows_of(const CrossEntropy& args, double* losses) {
  const int64_t logits_stride = args.logits_stride != 0 ? args.logits_stride : args.vocabulary;
  const int64_t other_stride = args.gradient_stride != 0 ? args.gradient_stride : args.vocabulary;
  const bool in_place = args.gradient == nullptr;
  return {args.logits,
          args.targets,
          static_cast<G*>(in_place ? args.logits : args.gradient),
          losses,
          args.row_loss,
          args.row_scale,
          args.vocabulary,
          args.first,
          args.all_columns(),
          logits_stride,
          in_place ? logits_stride : other_stride,
          args.ignore_index,
          args.scale,
          args.label_smoothing,
          args.z_loss,
          args.need_gradient,
          args.top_k,
          args.teacher,
          args.at_teachers,
          args.target_weight,
          args.beta};
}

// launch_rows(rows_of the gradient's type), and the losses added up.
template <class LaunchRows>
void run(const CrossEntropy& args, CrossEntropyTotals* totals, void* workspace, cudaStream_t stream,
         const LaunchRows& launch_rows) {
  if (args.rows == 0) return;
  auto* losses = static_cast<double*>(workspace);
  with_type(args.gradient == nullptr ? Scalar::F32 : args.gradient_type,
            [&](auto type) { launch_rows(rows_of<decltype(type)>(args, losses)); });
  launch("cross_entropy/add_losses", add_losses, 1, kSumThreads, 0, stream, losses, args.targets,
         args.rows, args.ignore_index, totals);
}

}  // namespace

void teachers_logits(const CrossEntropy& args, float* out, cudaStream_t stream) {
  if (args.rows == 0 || args.top_k == 0) return;
  launch("teachers_logits", logits_of_teacher, args.rows, kSumThreads, 0, stream,
         rows_of<float>(args, nullptr), out);
}

namespace {

int threads_of(const CrossEntropy& args) {
  const int threads = threads_for(args.vocabulary, 8);
  return args.top_k > 0 ? std::min(threads, kTaughtThreads) : threads;
}

}  // namespace

void cross_entropy(const CrossEntropy& args, CrossEntropyTotals* totals, void* workspace,
                   cudaStream_t stream) {
  run(args, totals, workspace, stream, [&]<class G>(const Rows<G>& a) {
    launch("cross_entropy/one_row", args.top_k > 0 ? one_taught_row<G> : one_row<G>, args.rows,
           threads_of(args), 0, stream, a);
  });
}

void cross_entropy_part_sums(const CrossEntropy& args, CrossEntropyPartSums* sums,
                             cudaStream_t stream) {
  if (args.rows == 0) return;
  launch("cross_entropy_part_sums", sums_of_part, args.rows, threads_for(args.vocabulary, 8), 0,
         stream, rows_of<float>(args, nullptr), sums);
}

void cross_entropy_of_parts(const CrossEntropy& args, const CrossEntropyPartSums* sums,
                            int64_t num_parts, CrossEntropyTotals* totals, void* workspace,
                            cudaStream_t stream) {
  run(args, totals, workspace, stream, [&]<class G>(const Rows<G>& a) {
    launch("cross_entropy/one_row_of_parts",
           args.top_k > 0 ? one_taught_row_of_parts<G> : one_row_of_parts<G>, args.rows,
           threads_of(args), 0, stream, a, sums, num_parts);
  });
}

}  // namespace snug::kernels::cuda
