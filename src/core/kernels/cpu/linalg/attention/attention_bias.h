// T5's relative biases (Raffel et al. 2020, section 2.1) during attention: the table of buckets is
// expanded to one value per distance and head, so that a row of scores loads its biases as
// contiguous vectors. Larger distances share a bucket, so the expansion has a fixed length plus a
// margin, whatever the documents' length.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>

#include "core/kernels/cpu/linalg/attention/attention.h"
#include "core/kernels/cpu/linalg/isa/kernels.h"
#include "core/kernels/cpu/linalg/parallel.h"

namespace snug::kernels::cpu {

class RelativeBias {
 public:
  // A run starts at a row's first key and extends at most `margin` distances to either side. Takes
  // memory from `carver`; none if the table has no buckets.
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
  // Distances per head.
  int64_t width() const { return width_; }

  // Called by all threads of a parallel region; ends with a barrier.
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
