// How long a run is: the samples of a step and an epoch, and the steps that epochs, max_steps and
// max_tokens allow. Plans and runs share it, so both say if max_steps will not be reached.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/sample_store.h"
#include "data/sampler.h"
#include "recipe/recipe.h"

namespace snug::engine {

struct RunLength {
  data::SamplerOptions sampler;  // without `first`
  int64_t steps = 0;             // of the whole run; an estimate with train.max_tokens
  int64_t samples_per_epoch = 0;
  std::string note;  // why they are fewer than train.max_steps; else empty
};

// `ranges`: those of a mix (data/mix.h), else none. `data_ranks`: the processes with samples of
// their own, by which train.limit_train_batches counts; a run that goes on has the epochs of the
// one before, of samples_per_epoch if that is not 0. Throws UserError if there is no step.
RunLength run_length(const recipe::Recipe& recipe, const data::SampleStore& samples,
                     const std::vector<data::SampleRange>& ranges, int64_t data_ranks,
                     int64_t samples_per_epoch = 0);

// On average, where train.epoch_size takes a part of the samples.
int64_t tokens_per_epoch(const RunLength& length, const data::SampleStore& samples);

}  // namespace snug::engine
