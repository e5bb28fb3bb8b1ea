// SPDX-License-Identifier: Apache-2.0
#include "use/generate/sampling.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace snug::use {

int32_t TokenSampler::next(std::span<const float> logits) {
  const auto best = std::max_element(logits.begin(), logits.end());
  if (options_.temperature <= 0) return static_cast<int32_t>(best - logits.begin());
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto kept = std::min<size_t>(logits.size(), options_.top_k && *options_.top_k > 0
                                                        ? static_cast<size_t>(*options_.top_k)
                                                        : logits.size());
  std::partial_sort(
      order.begin(), order.begin() + static_cast<std::ptrdiff_t>(kept), order.end(),
      [&](int32_t a, int32_t b) { return logits[a] != logits[b] ? logits[a] > logits[b] : a < b; });
  std::vector<double> weights(kept);
  double total = 0;
  for (size_t i = 0; i < kept; ++i) {
    weights[i] = std::exp((logits[order[i]] - *best) / options_.temperature);
    total += weights[i];
  }
  // The smallest set of likeliest tokens whose share reaches top_p.
  size_t nucleus = 0;
  double share = 0;
  while (nucleus < kept && share < options_.top_p * total) share += weights[nucleus++];
  nucleus = std::max<size_t>(nucleus, 1);
  const double uniform = static_cast<double>(random_.next() >> 11) * 0x1p-53;
  double left =
      uniform *
      std::accumulate(weights.begin(), weights.begin() + static_cast<std::ptrdiff_t>(nucleus), 0.0);
  for (size_t i = 0; i < nucleus; ++i) {
    left -= weights[i];
    if (left < 0) return order[i];
  }
  return order[nucleus - 1];
}

}  // namespace snug::use
