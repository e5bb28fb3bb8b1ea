// SPDX-License-Identifier: Apache-2.0
#include "lab/run/edge.h"

#include <algorithm>

namespace snug::lab {

Edge find_edge(int64_t first, int64_t last, int64_t start, int64_t step, const Fits& fits) {
  Edge edge;
  const auto tries = [&](int64_t value) {
    const std::optional<bool> answer = fits(value);
    if (!answer) return false;
    (*answer ? edge.fits : edge.too_large) = value;
    return true;
  };
  step = std::max<int64_t>(1, step);
  if (!tries(std::clamp(start, first, last))) return edge;
  for (; !edge.too_large && *edge.fits < last; step *= 2)
    if (!tries(std::min(last, *edge.fits + step))) return edge;
  for (; !edge.fits && *edge.too_large > first; step *= 2)
    if (!tries(std::max(first, *edge.too_large - step))) return edge;
  while (edge.fits && edge.too_large && *edge.too_large - *edge.fits > 1)
    if (!tries(*edge.fits + (*edge.too_large - *edge.fits) / 2)) return edge;
  edge.is_found = true;
  return edge;
}

}  // namespace snug::lab
