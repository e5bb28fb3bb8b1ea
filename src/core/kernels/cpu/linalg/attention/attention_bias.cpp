// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/cpu/linalg/attention/attention_bias.h"

#include <cmath>

namespace snug::kernels::cpu {

// The arithmetic is float32's where models were trained with float32's: a distance at the edge of a
// bucket falls on the same side.
int64_t relative_bucket(int64_t distance, const BiasTable& table) {
  int64_t buckets = table.num_buckets, first = 0;
  if (table.both_directions) {
    buckets /= 2;
    if (distance > 0) first = buckets;
    distance = std::abs(distance);
  } else {
    distance = std::max<int64_t>(0, -distance);
  }
  const int64_t exact = buckets / 2;
  if (distance < exact) return first + distance;
  const float logarithm = std::log(static_cast<float>(distance) / static_cast<float>(exact));
  const auto whole = static_cast<float>(
      std::log(static_cast<double>(table.max_distance) / static_cast<double>(exact)));
  const auto bucket =
      exact + static_cast<int64_t>(logarithm / whole * static_cast<float>(buckets - exact));
  return first + std::min(bucket, buckets - 1);
}

void RelativeBias::fill(const Kernels& kernels) const {
  if (!present()) return;
#pragma omp for schedule(static)
  for (int64_t i = 0; i < width_; ++i)
    buckets_[i] = static_cast<int32_t>(relative_bucket(i - center_, table_));
#pragma omp for schedule(static)
  for (int64_t head = 0; head < heads_; ++head) {
    float* values = values_ + head * table_.num_buckets;
    const auto* first = static_cast<const char*>(table_.data) + head * scalar_bytes(table_.type);
    kernels.unpack(first, table_.type, heads_, table_.num_buckets, values);
    float* row = by_distance_ + head * width_;
    for (int64_t i = 0; i < width_; ++i) row[i] = values[buckets_[i]];
  }
}

void RelativeBias::sum_buckets(const float* by_distance, float* sums) const {
  std::fill_n(sums, table_.num_buckets, 0.f);
  for (int64_t i = 0; i < width_; ++i) sums[buckets_[i]] += by_distance[i];
}

}  // namespace snug::kernels::cpu
