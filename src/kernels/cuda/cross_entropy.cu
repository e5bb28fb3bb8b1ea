// One block a row. The first sweep keeps a running maximum and the sum relative to it in each
// thread; the second, which finds much of the row in the second-level cache, writes the gradient.
// The rows' losses are added by one block in a fixed order.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/cross_entropy.h"

#include "kernels/cuda/elements.cuh"

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
  int64_t vocabulary;
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

// The sum moved to another maximum; an empty one (maximum -infinity) stays 0.
__device__ float moved(float sum, float from, float to) {
  return from == to ? sum : from == -INFINITY ? 0.f : sum * expf(from - to);
}

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
__device__ void write_gradient(const Rows<G>& a, const float* x, G* out, int32_t target,
                               float lse) {
  const float factor = a.scale * (1.f + 2.f * a.z_loss * lse);
  const float share = a.scale * a.smoothing / static_cast<float>(a.vocabulary);
  for (int64_t i = threadIdx.x; i < a.vocabulary; i += blockDim.x) {
    const float onehot = i == target ? a.scale * (1.f - a.smoothing) : 0.f;
    out[i] = from_float<G>(factor * expf(x[i] - lse) - onehot - share);
  }
}

template <class G>
__global__ void one_row(Rows<G> a) {
  const int64_t row = blockIdx.x;
  const float* x = a.logits + row * a.logits_stride;
  G* out = a.gradient + row * a.gradient_stride;
  const int32_t target = a.targets[row];
  if (target == a.ignore_index) {
    if (threadIdx.x == 0) {
      a.losses[row] = 0;
      if (a.row_loss != nullptr) a.row_loss[row] = 0;
    }
    if (!a.need_gradient) return;
    for (int64_t i = threadIdx.x; i < a.vocabulary; i += blockDim.x) out[i] = from_float<G>(0.f);
    return;
  }
  const bool known = target >= 0 && target < a.vocabulary;
  const float target_logit = known ? x[target] : NAN;
  const RowSums sums = sum_row(x, a.vocabulary, a.smoothing != 0);  // ends with all having read x
  const float lse = logf(sums.exponentials) + sums.maximum;
  if (threadIdx.x == 0) {
    const double mean = static_cast<double>(sums.logits) / static_cast<double>(a.vocabulary);
    const double loss = lse - (1.0 - a.smoothing) * target_logit - a.smoothing * mean +
                        static_cast<double>(a.z_loss) * lse * lse;
    a.losses[row] = loss;
    if (a.row_loss != nullptr) a.row_loss[row] = static_cast<float>(loss);
  }
  if (a.need_gradient) write_gradient(a, x, out, target, lse);
}

__global__ void add_losses(const double* losses, const int32_t* targets, int64_t rows,
                           int32_t ignore_index, CrossEntropyTotals* totals) {
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

int64_t cross_entropy_workspace_bytes(const cpu::CrossEntropy& args) {
  return args.rows * static_cast<int64_t>(sizeof(double));
}

void cross_entropy(const cpu::CrossEntropy& args, CrossEntropyTotals* totals, void* workspace,
                   cudaStream_t stream) {
  if (args.rows == 0) return;
  auto* losses = static_cast<double*>(workspace);
  const int64_t logits_stride = args.logits_stride != 0 ? args.logits_stride : args.vocabulary;
  const int64_t other_stride = args.gradient_stride != 0 ? args.gradient_stride : args.vocabulary;
  const bool in_place = args.gradient == nullptr;
  with_type(in_place ? Scalar::F32 : args.gradient_type, [&](auto type) {
    using G = decltype(type);
    const Rows<G> a = {args.logits,
                       args.targets,
                       static_cast<G*>(in_place ? args.logits : args.gradient),
                       losses,
                       args.row_loss,
                       args.vocabulary,
                       logits_stride,
                       in_place ? logits_stride : other_stride,
                       args.ignore_index,
                       args.scale,
                       args.label_smoothing,
                       args.z_loss,
                       args.need_gradient};
    one_row<G><<<static_cast<unsigned>(args.rows), threads_for(args.vocabulary, 8), 0, stream>>>(a);
    check_launch("cross_entropy");
  });
  add_losses<<<1, kSumThreads, 0, stream>>>(losses, args.targets, args.rows, args.ignore_index,
                                            totals);
  check_launch("cross_entropy");
}

}  // namespace snug::kernels::cuda
