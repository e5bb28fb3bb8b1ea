// The part of a plan that is about several devices: what each of them holds, what travels between
// them, and what more of them would bring.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "models/model.h"
#include "plan/devices/device_profile.h"
#include "plan/fit.h"
#include "recipe/recipe.h"

namespace snug::plan {

// Three figures, and never fewer than the whole seconds; without the unit, which a column's head or
// the sentence says.
std::string seconds_text(double seconds);

// "8 on 2 machines of 4, fsdp (fsdp=8): each holds 1/8 of weights, gradients and optimizer states".
std::string devices_line(const recipe::Recipe& recipe);

// A table of the collectives of a step; empty for one device.
std::string links_text(const plan::Candidate& candidate, const plan::DeviceProfile& device);
nlohmann::json links_json(const plan::Candidate& candidate, const plan::DeviceProfile& device);

// 1, 8, 64, 512 and 4096 devices, each with as many samples as one of the recipe's.
class Scaling {
 public:
  Scaling(const models::Model& model, const recipe::Recipe& recipe, const plan::Workload& work,
          const plan::DeviceProfile& device);

  std::string text() const;
  nlohmann::json json() const;

 private:
  struct Row {
    int64_t ranks = 1;
    plan::Candidate candidate;
  };
  double tokens_per_second_of_one() const;

  const plan::DeviceProfile& device_;
  std::vector<Row> rows_;
};

}  // namespace snug::plan
