// How evenly a mixture's tokens went to its experts: each block's shares, over the steps of a run.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace snug::report {

struct ExpertRecord {
  int64_t block = 0;
  int64_t steps = 0;           // that the shares are means over
  std::vector<double> shares;  // of the block's routes, by expert
  bool operator==(const ExpertRecord&) const = default;
};

// Adds a step: how many tokens each expert got, `num_experts` for each block. Those without any are
// blocks without experts.
void add(std::vector<ExpertRecord>& blocks, std::span<const double> tokens, int64_t num_experts);

// What the busiest expert of any block got, over its block's mean; 0: there are no experts.
double busiest_over_mean(std::span<const double> tokens, int64_t num_experts);

// A line for each block: its busiest and its idlest expert, those without tokens, and all shares as
// a row of bars.
std::string expert_table(std::span<const ExpertRecord> blocks);

}  // namespace snug::report
