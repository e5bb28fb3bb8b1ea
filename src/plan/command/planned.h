// A recipe planned for a device, and its output as text (plan_text.cpp) and JSON (plan_json.cpp).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "data/sample_store.h"
#include "engine/adapters/adapters.h"
#include "engine/run_length.h"
#include "models/family.h"
#include "plan/candidate.h"
#include "plan/command/plan_devices.h"
#include "plan/command/plan_like.h"
#include "plan/counted_step.h"
#include "plan/fit.h"
#include "plan/suggest.h"
#include "recipe/numbers.h"
#include "recipe/options/commands.h"
#include "recipe/recipe.h"
#include "report/run_page.h"

namespace snug::plan {

// Another model that is asked about all rows before this one is loaded (train/other_models.h).
struct AskedModel {
  const char* role;  // "Teacher"
  std::string path;
  int64_t weights = 0;  // bytes on the device
};

// Scaling and Like refer to other members, so it must not be moved.
struct Planned {
  recipe::Recipe recipe;
  DeviceProfile device = {};
  models::Checkpoint checkpoint = {};
  std::string hub_id = {};    // the model's id, if its shape is from the table of models
  std::string asked_id = {};  // as it was asked for, perhaps a copy of that one by its name
  bool fetched = false;       // its config and tokenizer were, from the hub
  data::SampleStore samples = {}, validation = {};
  data::SampleStore others = {}, validation_others = {};  // as Workload has them
  data::Reading reading = {};
  int64_t longest = 0;                 // tokens of the longest sample, validation's too
  bool from_data = false;              // samples are the recipe's, not placeholders
  bool length_is_usual = false;        // placeholders have a common length
  engine::RunLength length = {};       // of data
  recipe::Price price = {};            // of an hour of one device
  std::vector<Candidate> stages = {};  // one per stage of the pipeline
  Candidate wanted = {};               // the stage that needs most
  std::optional<AskedModel> asked = {};
  std::optional<Fit> fit = {};
  std::vector<Suggestion> other_training = {};  // with fit, of a recipe that does not fit as it is
  std::optional<Scaling> scaling = {};
  std::optional<Like> like = {};
  std::optional<CountedStep> counted = {};

  Workload workload() const {
    return {.samples = samples,
            .max_seqlen = longest,
            .reading = reading,
            .made_up = !from_data,
            .validation = &validation,
            .others = &others,
            .validation_others = &validation_others};
  }
  const Prediction& prediction() const { return wanted.prediction; }
  // Seconds of this run's steps, by the cost model; 0: no data say how many there are.
  double run_seconds() const {
    return from_data ? static_cast<double>(length.steps) * wanted.cost.seconds() : 0;
  }
  bool has_many_devices() const;
  // For each kind of memory, what the neediest stage lacks.
  Missing missing() const;
  bool wanted_fits() const { return missing().sum() == 0; }
  int64_t need() const { return bytes_on_device(prediction(), device.kind); }
  engine::ParameterCount count_parameters() const;
};

// Plans p.recipe: fills all but `fit`, `scaling`, `like` and `counted`.
void plan_recipe(Planned& p, const recipe::PlanOptions& options);

// The lines above the timeline, which terminal and page share.
std::vector<std::string> plan_lines(const Planned& planned);
std::string plan_text(const Planned& planned, const std::vector<std::string>& lines);
report::PlanPage plan_page(const Planned& planned, const std::vector<std::string>& lines);

// On standard output; in a terminal lines are folded at its width, but for those of JSON.
void print_plan(const std::string& text, bool as_json);

nlohmann::json plan_json(const Planned& planned);
std::map<std::string, int64_t> named(const memory::ByCategory& bytes);
nlohmann::json timeline_json(const std::vector<Moment>& timeline);

}  // namespace snug::plan
