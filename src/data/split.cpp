// SPDX-License-Identifier: Apache-2.0
#include "data/split.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "base/error.h"
#include "data/random.h"

namespace snug::data {
namespace {

// The purpose of the split's generator; epochs count from 0 and never get here.
constexpr uint64_t kSplitPurpose = ~uint64_t{0};
constexpr uint64_t kChoicePurpose = ~uint64_t{1};

std::filesystem::path find_part(const std::filesystem::path& folder, const std::string& part) {
  for (const char* ending : {".json", ".jsonl", ".parquet"}) {
    std::filesystem::path path = folder / (part + ending);
    if (std::filesystem::is_regular_file(path)) return path;
  }
  throw UserError(
      "{}: no {}.json (or .jsonl, .parquet); a data folder needs one file named train and one "
      "named val",
      folder.string(), part);
}

}  // namespace

int64_t validation_rows(int64_t num_rows, double fraction, SplitRounding rounding) {
  if (!(fraction >= 0 && fraction < 1))
    throw UserError("val_split_fraction = {} must be at least 0 and below 1", fraction);
  if (fraction == 0) return 0;
  const double share = fraction * static_cast<double>(num_rows);
  // Products such as 0.29 × 100 fall a hair beside the whole number that is meant.
  const double nearest = std::round(share);
  const double rounded = std::abs(share - nearest) < 1e-6 ? nearest
                         : rounding == SplitRounding::Up  ? std::ceil(share)
                                                          : std::floor(share);
  const int64_t count = std::max<int64_t>(1, static_cast<int64_t>(rounded));
  if (count >= num_rows)
    throw UserError(
        "val_split_fraction = {} of {} rows leaves none to train on; give more rows or a smaller "
        "fraction",
        fraction, num_rows);
  return count;
}

std::vector<int64_t> choose_rows(int64_t count, std::optional<int64_t> max_samples, uint64_t seed) {
  std::vector<int64_t> rows = permutation(count, derive(seed, kChoicePurpose));
  if (max_samples && *max_samples < count) rows.resize(static_cast<size_t>(*max_samples));
  return rows;
}

Split split_rows(std::vector<Row> rows, double val_split_fraction, uint64_t seed,
                 SplitRounding rounding) {
  const auto count = static_cast<int64_t>(rows.size());
  const int64_t held_out = validation_rows(count, val_split_fraction, rounding);
  const std::vector<int64_t> order = permutation(count, derive(seed, kSplitPurpose));
  Split split;
  split.train.reserve(static_cast<size_t>(count - held_out));
  for (int64_t i = 0; i < count; ++i) {
    std::vector<Row>& part = i < held_out ? split.validation : split.train;
    part.push_back(std::move(rows[order[i]]));
  }
  return split;
}

Split read_split_folder(const std::filesystem::path& folder, const Columns& columns) {
  return {read_rows(find_part(folder, "train"), columns),
          read_rows(find_part(folder, "val"), columns)};
}

}  // namespace snug::data
