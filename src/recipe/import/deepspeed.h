// What of DeepSpeed's settings is nothing to snug, but to a plan of what DeepSpeed itself takes.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace snug::recipe {

// Elements of weights, not bytes. Numbers that are not said are DeepSpeed's own defaults.
struct DeepSpeed {
  static constexpr int64_t kAuto = -1;  // by transformers, from the model's width

  int64_t reduce_bucket = 500'000'000;
  int64_t prefetch_bucket = 50'000'000;
  int64_t persistence_threshold = 100'000;
  int64_t max_live = 1'000'000'000;
  int64_t max_reuse_distance = 1'000'000'000;
  int64_t sub_group = 1'000'000'000;
  bool overlaps = false;    // a second bucket. Of stages 1 and 2.
  bool has_buckets = true;  // (contiguous_gradients)
  int64_t host_group = 1;   // ranks that share a second copy of the weights (hpz)
  // offload_optimizer: the share of the optimizer that it offloads, and whether it is SuperOffload.
  double offloaded = 1;
  bool super_offload = false;
};

}  // namespace snug::recipe
