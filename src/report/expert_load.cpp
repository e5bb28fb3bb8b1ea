// SPDX-License-Identifier: Apache-2.0
#include "report/expert_load.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "report/run_page.h"
#include "report/tables.h"

namespace snug::report {
namespace {

// body(block, its tokens, their sum) for each block with experts.
template <class Body>
void for_each_block(std::span<const double> tokens, int64_t num_experts, const Body& body) {
  const auto width = static_cast<size_t>(num_experts);
  for (size_t begin = 0; width > 0 && begin + width <= tokens.size(); begin += width) {
    const std::span<const double> own = tokens.subspan(begin, width);
    const double sum = std::accumulate(own.begin(), own.end(), 0.0);
    if (sum > 0) body(static_cast<int64_t>(begin / width), own, sum);
  }
}

// As a share of the even distribution's, 0..1.
double entropy_of(const std::vector<double>& shares) {
  double entropy = 0;
  for (const double share : shares)
    if (share > 0) entropy -= share * std::log(share);
  return shares.size() > 1 ? entropy / std::log(static_cast<double>(shares.size())) : 1;
}

std::string bars(const std::vector<double>& shares) {
  constexpr double kParts = 1e6;
  constexpr int kColumns = 64;
  std::vector<int64_t> parts;
  for (const double share : shares) parts.push_back(std::llround(kParts * share));
  return sparkline(parts, kColumns);
}

}  // namespace

void add(std::vector<ExpertRecord>& blocks, std::span<const double> tokens, int64_t num_experts) {
  for_each_block(tokens, num_experts, [&](int64_t block, std::span<const double> own, double sum) {
    auto found = std::ranges::find(blocks, block, &ExpertRecord::block);
    if (found == blocks.end()) found = blocks.insert(blocks.end(), {.block = block, .shares = {}});
    found->shares.resize(own.size());
    const auto steps = static_cast<double>(++found->steps);
    for (size_t i = 0; i < own.size(); ++i)
      found->shares[i] += (own[i] / sum - found->shares[i]) / steps;
  });
}

double busiest_over_mean(std::span<const double> tokens, int64_t num_experts) {
  double most = 0;
  for_each_block(tokens, num_experts, [&](int64_t, std::span<const double> own, double sum) {
    most = std::max(most, *std::ranges::max_element(own) / sum * static_cast<double>(own.size()));
  });
  return most;
}

std::string expert_table(std::span<const ExpertRecord> blocks) {
  Table table(
      {{"Block"}, {"Busiest"}, {"Idlest"}, {"Unused"}, {"Evenness"}, {"Shares", Align::Left}});
  for (const ExpertRecord& block : blocks) {
    if (block.shares.empty()) continue;
    const auto [least, most] = std::ranges::minmax_element(block.shares);
    const auto count = static_cast<double>(block.shares.size());
    const auto expert = [&](auto place) {
      return fmt::format("{:.2f} × mean (expert {})", count * *place, place - block.shares.begin());
    };
    table.add_row({std::to_string(block.block), expert(most), expert(least),
                   std::to_string(std::ranges::count(block.shares, 0.0)),
                   fmt::format("{:.3f}", entropy_of(block.shares)), bars(block.shares)});
  }
  return table.render();
}

}  // namespace snug::report
