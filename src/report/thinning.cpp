// SPDX-License-Identifier: Apache-2.0
#include "report/thinning.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>
#include <numeric>
#include <utility>

namespace snug::report {
namespace {

// The mean of two means that stand for so many values each; one that is no number counts for
// nothing.
double mean(double a, int64_t of_a, double b, int64_t of_b) {
  if (!std::isfinite(a) || of_a == 0) return b;
  if (!std::isfinite(b) || of_b == 0) return a;
  return a + (b - a) * (static_cast<double>(of_b) / static_cast<double>(of_a + of_b));
}

Figures merged(const Figures& a, int64_t of_a, const Figures& b, int64_t of_b) {
  Figures all = b;
  for (const auto& [name, value] : a)
    all[name] = b.contains(name) ? mean(value, of_a, b.at(name), of_b) : value;
  return all;
}

StepRecord merged(const StepRecord& a, const StepRecord& b) {
  const auto mean_of = [&](double StepRecord::*value) {
    return mean(a.*value, a.count, b.*value, b.count);
  };
  return {.step = b.step,
          .loss = mean_of(&StepRecord::loss),
          .seconds = a.seconds + b.seconds,
          .tokens = a.tokens + b.tokens,
          .padded_tokens = a.padded_tokens + b.padded_tokens,
          .lr = b.lr,
          .grad_norm = mean_of(&StepRecord::grad_norm),
          .raw_tokens = a.raw_tokens + b.raw_tokens,
          .epoch = b.epoch,
          .utilization = mean_of(&StepRecord::utilization),
          .expert_load = std::max(a.expert_load, b.expert_load),
          .figures = merged(a.figures, a.count, b.figures, b.count),
          .count = a.count + b.count};
}

ValidationRecord merged(const ValidationRecord& a, const ValidationRecord& b) {
  return {.step = b.step,
          .loss = mean(a.loss, a.count, b.loss, b.count),
          .tokens = b.tokens,
          .figures = merged(a.figures, a.count, b.figures, b.count),
          .sources = merged(a.sources, a.count, b.sources, b.count),
          .count = a.count + b.count};
}

EpochRecord merged(const EpochRecord& a, const EpochRecord& b) {
  return {.epoch = b.epoch,
          .steps = a.steps + b.steps,
          .loss = mean(a.loss, a.steps - a.skipped, b.loss, b.steps - b.skipped),
          .tokens = a.tokens + b.tokens,
          .seconds = a.seconds + b.seconds,
          .skipped = a.skipped + b.skipped,
          .count = a.count + b.count};
}

template <class Entry>
void thin(std::vector<Entry>& entries) {
  if (entries.size() <= kMostEntries) return;
  const auto oldest = entries.begin() + 1, newest = entries.end() - kNewest;
  const int64_t stand_for = std::accumulate(
      oldest, newest, int64_t{0}, [](int64_t sum, const Entry& e) { return sum + e.count; });
  int64_t width = 1;
  while (width * static_cast<int64_t>(kOlder) < stand_for) width *= 2;
  std::vector<Entry> kept{entries.front()};
  kept.reserve(kMostEntries + 1);
  for (auto entry = oldest; entry != newest; ++entry) {
    const bool begins = kept.size() == 1 || kept.back().count >= width;
    if (begins)
      kept.push_back(*entry);
    else
      kept.back() = merged(kept.back(), *entry);
  }
  kept.insert(kept.end(), newest, entries.end());
  entries = std::move(kept);
}

}  // namespace

void add(std::vector<StepRecord>& steps, const StepRecord& step) {
  steps.push_back(step);
  thin(steps);
}

void add(std::vector<ValidationRecord>& validations, const ValidationRecord& validation) {
  validations.push_back(validation);
  thin(validations);
}

void add(std::vector<EpochRecord>& epochs, const StepRecord& step) {
  if (step.epoch == 0) return;
  if (epochs.empty() || epochs.back().epoch != step.epoch) {
    epochs.push_back({.epoch = step.epoch});
    thin(epochs);
  }
  const bool skipped = !std::isfinite(step.loss);
  epochs.back() = merged(epochs.back(), {.epoch = step.epoch,
                                         .steps = step.count,
                                         .loss = skipped ? 0 : step.loss,
                                         .tokens = step.tokens,
                                         .seconds = step.seconds,
                                         .skipped = skipped ? step.count : 0,
                                         .count = 0});
}

}  // namespace snug::report
