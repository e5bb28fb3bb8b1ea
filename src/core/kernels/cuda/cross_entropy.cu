// One block a row. The first sweep keeps a running maximum and the sum relative to it in each
// thread; the second, which finds much of the row in the second-level cache, writes the gradient.
// The rows' losses are added by one block in a fixed order.
// Bytes a logit, G those of the gradient's type, without what the second-level cache serves:
//   one_row: reads 4, writes G
//   sums_of_part: reads 4
//   one_row_of_parts: reads 4, writes G
//   add_losses: reads 12 a row
// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/cuda/operators.h"

#include "core/kernels/cuda/elements.cuh"

namespace snug::kernels::cuda {
namespace {

constexpr int kSumThreads = 256;

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

template <class G>
__device__ void write_gradient(const Rows<G>& a, float scale, const float* x, G* out,
                               int32_t target, float lse) {
  const float factor = scale * (1.f + 2.f * a.z_loss * lse);
  const float share = scale * a.smoothing / static_cast<float>(a.all_columns);
  for (int64_t i = threadIdx.x; i < a.vocabulary; i += blockDim.x) {
    const float onehot = a.first + i == target ? scale * (1.f - a.smoothing) : 0.f;
    out[i] = from_float<G>(factor * expf(x[i] - lse) - onehot - share);
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
template <class G>
__device__ void finish_row(const Rows<G>& a, int64_t row, const float* x, G* out,
                           const RowSums& sums, float target_logit) {
  const float lse = logf(sums.exponentials) + sums.maximum;
  if (threadIdx.x == 0) {
    const double mean = static_cast<double>(sums.logits) / static_cast<double>(a.all_columns);
    const double loss = lse - (1.0 - a.smoothing) * target_logit - a.smoothing * mean +
                        static_cast<double>(a.z_loss) * lse * lse;
    a.losses[row] = loss;
    if (a.row_loss != nullptr) a.row_loss[row] = static_cast<float>(loss);
  }
  if (!a.need_gradient) return;
  const float scale = a.row_scale == nullptr ? a.scale : a.scale * a.row_scale[blockIdx.x];
  write_gradient(a, scale, x, out, a.targets[blockIdx.x], lse);
}

template <class G>
__global__ void __launch_bounds__(kMostThreads) one_row(Rows<G> a) {
  const int64_t row = blockIdx.x;
  const float* x = a.logits + row * a.logits_stride;
  G* out = a.gradient + row * a.gradient_stride;
  const int32_t target = a.targets[row];
  if (target == a.ignore_index) return ignore_row(a, row, out);
  const bool known = target >= 0 && target < a.vocabulary;
  const float target_logit = known ? x[target] : NAN;
  const RowSums sums = sum_row(x, a.vocabulary, a.smoothing != 0);  // ends with all having read x
  finish_row(a, row, x, out, sums, target_logit);
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

template <class G>
__global__ void __launch_bounds__(kMostThreads)
    one_row_of_parts(Rows<G> a, const CrossEntropyPartSums* parts, int64_t num_parts) {
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
  finish_row(a, row, x, out, whole, target_logit);
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
          args.need_gradient};
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

void cross_entropy(const CrossEntropy& args, CrossEntropyTotals* totals, void* workspace,
                   cudaStream_t stream) {
  run(args, totals, workspace, stream, [&]<class G>(const Rows<G>& a) {
    launch("cross_entropy/one_row", one_row<G>, args.rows, threads_for(args.vocabulary, 8), 0,
           stream, a);
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
    launch("cross_entropy/one_row_of_parts", one_row_of_parts<G>, args.rows,
           threads_for(args.vocabulary, 8), 0, stream, a, sums, num_parts);
  });
}

}  // namespace snug::kernels::cuda
