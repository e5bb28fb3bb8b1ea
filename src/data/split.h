// Splits off rows for validation.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "data/rows/rows.h"

namespace snug::data {

struct Split {
  std::vector<Row> train, validation;
};

enum class SplitRounding { Down, Up };

// The number of rows that a fraction of `num_rows` holds out, at least 1 if fraction > 0. Throws
// UserError for a fraction outside [0, 1) or if no row is left to train on.
int64_t validation_rows(int64_t num_rows, double fraction, SplitRounding rounding);

// The default fraction held out of an HFDataset or ImageFolder.
inline constexpr double kUsualHeldOut = 0.05;

// The first `max_samples` of `count` rows, in an order that depends only on the seed.
std::vector<int64_t> choose_rows(int64_t count, std::optional<int64_t> max_samples, uint64_t seed);

// Holds out random rows, the same for a seed on every machine (random.h). Both parts are shuffled.
// The number is rounded down by default, as in LitGPT.
Split split_rows(std::vector<Row> rows, double val_split_fraction, uint64_t seed,
                 SplitRounding rounding = SplitRounding::Down);

// Reads a folder with train.json and val.json (or .jsonl, .parquet), as LitGPT's JSON data does.
Split read_split_folder(const std::filesystem::path& folder, const Columns& columns = {});

}  // namespace snug::data
