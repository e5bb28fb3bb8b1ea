// SPDX-License-Identifier: Apache-2.0
#include "use/generate/sampling.h"

#include <ATen/ops/index.h>
#include <ATen/ops/index_put.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <vector>

#include "base/error.h"

namespace snug::use {

void check_logit(float logit) {
  if (!std::isfinite(logit))
    throw UserError(
        "a logit is {}: weights of the model hold NaN or infinities, or are too large for "
        "--precision; snug verify names files that are damaged",
        std::isnan(logit) ? "NaN" : "infinite");
}

int32_t TokenSampler::next(std::span<const float> logits) {
  auto best = logits.begin();
  for (auto at = logits.begin(); at != logits.end() && !std::isnan(*best); ++at)
    if (std::isnan(*at) || *at > *best) best = at;
  check_logit(*best);
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

namespace {

// Elements of a matrix, by row and column.
struct Places {
  std::vector<int64_t> rows, columns;

  void add(size_t row, int32_t column) {
    rows.push_back(static_cast<int64_t>(row));
    columns.push_back(column);
  }
  c10::List<std::optional<at::Tensor>> on(at::Device device) const {
    c10::List<std::optional<at::Tensor>> indices;
    indices.push_back(at::tensor(rows, at::kLong).to(device));
    indices.push_back(at::tensor(columns, at::kLong).to(device));
    return indices;
  }
};

void penalise(double penalty, std::span<const std::vector<int32_t>> seen, at::Tensor& logits) {
  Places places;
  for (size_t row = 0; row < seen.size(); ++row)
    for (const int32_t id : std::set<int32_t>(seen[row].begin(), seen[row].end()))
      if (id < logits.size(1)) places.add(row, id);
  if (places.rows.empty()) return;
  const auto indices = places.on(logits.device());
  const at::Tensor values = at::index(logits, indices);
  logits.index_put_(indices, at::where(values.lt(0), values.mul(penalty), values.div(penalty)));
}

// Tokens that would repeat a sequence of `group` tokens.
void add_repeats(int64_t group, std::span<const std::vector<int32_t>> seen, Places& places) {
  for (size_t row = 0; row < seen.size(); ++row) {
    const std::vector<int32_t>& ids = seen[row];
    if (std::ssize(ids) < group) continue;
    const auto begun = ids.end() - (group - 1);
    for (auto at = ids.begin(); at + (group - 1) != ids.end(); ++at)
      if (std::equal(begun, ids.end(), at)) places.add(row, at[group - 1]);
  }
}

}  // namespace

void apply_rules(const LogitRules& rules, std::span<const std::vector<int32_t>> seen,
                 int64_t num_new, std::span<const int32_t> end_ids, at::Tensor& logits) {
  if (rules.repetition_penalty != 1.0) penalise(rules.repetition_penalty, seen, logits);
  Places forbidden;
  if (rules.no_repeat_ngram_size > 0) add_repeats(rules.no_repeat_ngram_size, seen, forbidden);
  if (num_new < rules.min_new_tokens)
    for (size_t row = 0; row < seen.size(); ++row)
      for (const int32_t id : end_ids)
        if (id < logits.size(1)) forbidden.add(row, id);
  if (forbidden.rows.empty()) return;
  logits.index_put_(forbidden.on(logits.device()),
                    at::scalar_tensor(-std::numeric_limits<float>::infinity(), logits.options()));
}

}  // namespace snug::use
