// The next token from logits: temperature, top-k, top-p (Holtzman et al. 2020), seeded.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "data/random.h"

namespace snug::use {

struct SamplingOptions {
  double temperature = 0.8;  // 0: the likeliest token
  std::optional<int64_t> top_k;
  double top_p = 1.0;
  uint64_t seed = 1234;
};

class TokenSampler {
 public:
  explicit TokenSampler(const SamplingOptions& options)
      : options_(options), random_(options.seed) {}
  int32_t next(std::span<const float> logits);

 private:
  SamplingOptions options_;
  data::SplitMix random_;
};

}  // namespace snug::use
