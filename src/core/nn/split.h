// How tensor parallelism splits a family's weights (Shoeybi et al. 2019): a table beside the family
// (models::Model::split), which engine::cut_tensors reads. A layer that is not in it is whole on
// every rank.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace snug::nn {

// The dimension that is split. If it holds several layers side by side (fused q, k, v), it has that
// many sections, each of which is split by itself.
struct Split {
  int64_t dim = 0;
  int64_t sections = 1;
};

// A layer's outputs with their biases, or a table's rows.
constexpr Split by_rows(int64_t sections = 1) { return {.dim = 0, .sections = sections}; }
// A layer's inputs: each rank computes a term of the output. Its bias is whole.
constexpr Split by_columns() { return {.dim = 1}; }

struct SplitRow {
  std::string_view layer;  // the end of its name, from a dot on: "q_proj", "output.dense"
  Split split;
};

// The split of the parameter "<layer>.weight" or "<layer>.bias".
std::optional<Split> split_of(const std::vector<SplitRow>& table, std::string_view parameter);

}  // namespace snug::nn
