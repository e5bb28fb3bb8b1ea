// One recipe on a device as the planner sees it: what it takes, how long, and whether it fits.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "core/dist/mesh.h"
#include "models/model.h"
#include "plan/cost_model.h"
#include "plan/devices/device_profile.h"
#include "plan/predict.h"
#include "plan/workload.h"
#include "recipe/recipe.h"

namespace snug::plan {

struct Candidate {
  recipe::Recipe recipe;
  std::string options;  // what it changes, as typed on the command line; empty: nothing
  Prediction prediction;
  StepCost cost;
};

// Sketch: close to the plan and sooner there (PredictOptions::sketch).
enum class Detail { Whole, Sketch };

// One recipe on a device, with its timeline; of several devices one, as rank `rank`.
Candidate evaluate(const models::Model& model, const recipe::Recipe& recipe, const Workload& work,
                   const DeviceProfile& device, int rank = 0, Detail detail = Detail::Whole);
// Memory of the rank that needs most, time of the one that takes longest: stages of a pipeline
// differ. One that does not fit needs most of all.
Candidate evaluate_neediest(const models::Model& model, const recipe::Recipe& recipe,
                            const Workload& work, const DeviceProfile& device,
                            Detail detail = Detail::Whole);
// The same of what was planned for each stage; at least one.
Candidate neediest_of(const std::vector<Candidate>& stages, const DeviceProfile& device);
bool fits(const Candidate& candidate, const DeviceProfile& device);
// What is missing, each of its own kind; 0: enough, or not known.
struct Missing {
  int64_t on_device = 0, in_host = 0, on_disk = 0;
  int64_t sum() const { return on_device + in_host + on_disk; }
};
Missing missing(const Candidate& candidate, const DeviceProfile& device);
// Of the host, for `ranks` processes of a machine that take as much each. On a cpu, device and host
// share one memory.
int64_t host_bytes_needed(const Prediction& prediction, at::DeviceType kind, int64_t ranks);

// By how much a candidate passes the host memory that is assumed; 0: not at all, or none is.
int64_t beyond_assumed_host(const Candidate& candidate, const DeviceProfile& device);

// One rank of each stage of a pipeline.
std::vector<int> first_of_stages(const dist::MeshShape& mesh);
// Ranks that do not hold the same: copies do. Of very many the first and the last, and one of each
// stage.
std::vector<int> different_ranks(const dist::MeshShape& mesh);

}  // namespace snug::plan
