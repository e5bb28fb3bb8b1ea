// The output of a plan about several devices: what each of them holds, the traffic between them,
// and how the recipe scales to more of them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "models/model.h"
#include "plan/devices/device_profile.h"
#include "plan/fit.h"
#include "recipe/recipe.h"

namespace snug::plan {

// Three digits, or all digits of whole seconds; without the unit.
std::string seconds_text(double seconds);

// "8 on 2 machines of 4, fsdp (fsdp=8): each holds 1/8 of weights, gradients and optimizer states".
std::string devices_line(const recipe::Recipe& recipe);

// A table of the collectives of a step; empty for one device.
std::string links_text(const plan::Candidate& candidate, const plan::DeviceProfile& device);
nlohmann::json links_json(const plan::Candidate& candidate, const plan::DeviceProfile& device);

// Scales the recipe to `ranks` devices with the same work for each; false if its mesh does not
// allow that number.
bool scale_to(recipe::Recipe& recipe, int64_t ranks);

// Plans for 1, 8, 64, 512 and 4096 devices, each device with as many samples as in the recipe.
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
