// Parts of a plan as JSON that its own figures and those of another program share.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/memory/ledger.h"
#include "plan/predict.h"

namespace snug::plan {

inline std::map<std::string, int64_t> named(const memory::ByCategory& bytes) {
  std::map<std::string, int64_t> result;
  for (size_t c = 0; c < memory::kNumCategories; ++c)
    result[memory::name(static_cast<memory::Category>(c))] = bytes[c];
  return result;
}

inline nlohmann::json timeline_json(const std::vector<plan::Moment>& timeline) {
  nlohmann::json moments = nlohmann::json::array();
  for (const plan::Moment& moment : timeline)
    moments.push_back({{"unit", moment.unit},
                       {"phase", memory::name(moment.phase)},
                       {"allocated", moment.allocated},
                       {"by_category", named(moment.by_category)}});
  return moments;
}

}  // namespace snug::plan
