// T5's relative biases (Raffel et al. 2020, section 2.1) while attention runs: the table of a few
// buckets, spread over distances for each head, so that a row of scores takes its biases as one
// vector load after another. Distances beyond the farthest that has a bucket of its own share one,
// so that there are as many as that, whatever the documents' length, and a margin for runs.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>

#include "kernels/cpu/linalg/attention.h"
#include "kernels/cpu/linalg/kernels.h"
#include "kernels/cpu/linalg/parallel.h"

namespace snug::kernels::cpu {

class RelativeBias {
 public:
  // A run starts at a row's first key and reaches at most `margin` distances to either side.
  // Takes its memory from `carver`, none where the table has no buckets.
  RelativeBias(Carver& carver, const BiasTable& table, int64_t num_heads, int64_t margin)
      : table_(table),
        heads_(num_heads),
        backward_(table.max_distance),
        forward_(table.both_directions ? table.max_distance : 0),
        center_(backward_ + margin),
        width_(present() ? center_ + forward_ + margin : 0),
        buckets_(carver.take<int32_t>(width_)),
        values_(carver.take<float>(table.num_buckets * num_heads)),
        by_distance_(carver.take<float>(width_ * num_heads)) {}

  bool present() const { return table_.num_buckets > 0; }
  // Distances that a head's row has.
  int64_t width() const { return width_; }

  // By all threads of a parallel region, which meet at its end.
  void fill(const Kernels& kernels) const;

  // Where the bias of `distance` (key minus query) stands in a head's row, of a run that reads the
  // `before` places before it and `after` from it on. One that lies beyond all that differ is moved
  // to where it is in memory.
  int64_t place(int64_t distance, int64_t before, int64_t after) const {
    return center_ + std::clamp(distance, -backward_ - after, forward_ + before);
  }
  const float* row(int64_t head) const { return by_distance_ + head * width_; }

  // sums[bucket] = the sum of by_distance[width()] over the bucket's distances.
  void sum_buckets(const float* by_distance, float* sums) const;

 private:
  BiasTable table_;
  int64_t heads_;
  int64_t backward_, forward_;  // farthest distances with a bucket of their own
  int64_t center_;              // the place of distance 0
  int64_t width_;
  int32_t* buckets_;    // (width)
  float* values_;       // (H, buckets)
  float* by_distance_;  // (H, width)
};

}  // namespace snug::kernels::cpu
