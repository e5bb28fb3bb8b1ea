// SPDX-License-Identifier: Apache-2.0
#include "engine/parallel/unit_work.h"

#include <algorithm>
#include <numeric>

#include "core/nn/linear.h"
#include "engine/parallel/stages.h"

namespace snug::engine {

double work_of(nn::Unit& unit) {
  double work = 1;
  for (const nn::Linear* linear : unit.linears())
    work +=
        static_cast<double>(linear->in_features()) * static_cast<double>(linear->out_features());
  return work;
}

double most_of_a_stage(const std::vector<nn::Unit*>& units, const StageLayout& layout) {
  std::vector<double> by_stage(static_cast<size_t>(layout.stages));
  for (size_t i = 0; i < units.size(); ++i)
    by_stage[static_cast<size_t>(layout.stage_of(static_cast<int64_t>(i)))] += work_of(*units[i]);
  const double all = std::accumulate(by_stage.begin(), by_stage.end(), 0.0);
  return *std::max_element(by_stage.begin(), by_stage.end()) * static_cast<double>(layout.stages) /
         all;
}

}  // namespace snug::engine
