// Rows of a teacher's most likely tokens for tests.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "unit/core/kernels/arrays.h"

namespace snug::kernels::cpu {

// (rows, 2 K): different ids of the vocabulary, from row 1 on one of them negative, and their
// log-probabilities, which leave something to all other tokens as long as there are any.
inline std::vector<float> teacher_rows(int64_t rows, int64_t vocabulary, int64_t top_k) {
  std::vector<float> all;
  for (int64_t row = 0; row < rows; ++row) {
    const std::vector<double> logits =
        random_values(vocabulary, 100 + static_cast<uint64_t>(row), 2.0);
    std::vector<int64_t> ids(static_cast<size_t>(vocabulary));
    std::iota(ids.begin(), ids.end(), 0);
    std::ranges::stable_sort(ids, [&](int64_t a, int64_t b) { return logits[a] > logits[b]; });
    double sum = 0;
    for (const double logit : logits) sum += std::exp(logit);
    for (int64_t i = 0; i < top_k; ++i)
      all.push_back(row > 0 && i == top_k / 2 ? -1.0F : static_cast<float>(ids[i]));
    for (int64_t i = 0; i < top_k; ++i)
      all.push_back(static_cast<float>(logits[ids[i]] - std::log(sum)));
  }
  return all;
}

}  // namespace snug::kernels::cpu
