// How long a run is: the samples of a step and an epoch, and the steps that epochs, max_steps and
// max_tokens leave. A plan and a run ask the same, so that both say when max_steps is not reached.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "data/sample_store.h"
#include "data/sampler.h"
#include "recipe/recipe.h"

namespace snug::engine {

struct RunLength {
  data::SamplerOptions sampler;  // without `first`
  int64_t steps = 0;             // of the whole run; by train.max_tokens: about as many
  std::string note;              // why they are fewer than train.max_steps; empty: they are not
};

// `data_ranks`: processes that read samples of their own. Throws UserError where there is no step.
RunLength run_length(const recipe::Recipe& recipe, const data::SampleStore& samples,
                     int64_t data_ranks);

}  // namespace snug::engine
