// SPDX-License-Identifier: Apache-2.0
#include "engine/run_length.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "data/mix.h"
#include "recipe/batches.h"

namespace snug::engine {
namespace {

// train.limit_train_batches, of all processes; 0: all samples.
int64_t limited_epoch(const recipe::TrainOptions& train, int64_t num_samples, int64_t data_ranks) {
  const recipe::BatchLimit limit = *recipe::batch_limit(train.limit_train_batches);
  if (limit.count == 0 && limit.share == 1) return 0;
  const int64_t together = train.micro_batch_size * data_ranks;
  const int64_t batches = (num_samples + together - 1) / together;
  return limit.of(batches) * together;
}

double tokens_per_sample(const data::SampleStore& samples,
                         const std::vector<data::SampleRange>& ranges) {
  return data::tokens_of_epoch(samples, ranges) /
         static_cast<double>(data::samples_of_epoch(samples, ranges));
}

int64_t steps_for_tokens(int64_t tokens, double per_sample, int64_t batch_size) {
  const double per_step = per_sample * static_cast<double>(batch_size);
  return std::max<int64_t>(1,
                           static_cast<int64_t>(std::ceil(static_cast<double>(tokens) / per_step)));
}

std::string epochs_end_first(const RunLength& length, const recipe::TrainOptions& train) {
  const int64_t read = length.samples_per_epoch;
  const std::string epochs =
      *train.epochs == 1 ? "1 epoch" : fmt::format("{} epochs", with_commas(*train.epochs));
  // The last step may be a smaller one.
  const int64_t enough = (*train.max_steps - 1) * train.global_batch_size / read + 1;
  return fmt::format(
      "train.max_steps = {} is not reached: {} of {} samples are {} step{} of {} "
      "(train.global_batch_size); --train.epochs {} would be enough",
      *train.max_steps, epochs, with_commas(read), with_commas(length.steps),
      length.steps == 1 ? "" : "s", train.global_batch_size, enough);
}

}  // namespace

RunLength run_length(const recipe::Recipe& recipe, const data::SampleStore& samples,
                     const std::vector<data::SampleRange>& ranges, int64_t data_ranks,
                     int64_t samples_per_epoch) {
  const recipe::TrainOptions& t = recipe.train;
  const int64_t all = data::samples_of_epoch(samples, ranges);
  if (samples_per_epoch == 0) samples_per_epoch = limited_epoch(t, all, data_ranks);
  const bool bounded = t.max_steps.has_value() || t.max_tokens.has_value();
  const int64_t token_steps = t.max_tokens ? *t.max_tokens : 0;  // a step has at least one token
  RunLength length{
      .sampler = {.num_samples = samples.count(),
                  .ranges = ranges,
                  .global_batch_size = t.global_batch_size,
                  .micro_batch_size = t.micro_batch_size,
                  .samples_per_epoch = samples_per_epoch,
                  .epochs = t.epochs.value_or(bounded ? 0 : 1),
                  .max_steps = t.max_steps.value_or(t.epochs ? 0 : token_steps),
                  .seed = recipe.data.seed},
      .samples_per_epoch = samples_per_epoch > 0 ? std::min(all, samples_per_epoch) : all};
  length.steps = data::Sampler(length.sampler).num_steps();
  if (t.max_steps && length.steps < *t.max_steps) length.note = epochs_end_first(length, t);
  if (!t.max_tokens) return length;
  const int64_t enough =
      steps_for_tokens(*t.max_tokens, tokens_per_sample(samples, ranges), t.global_batch_size);
  if (enough >= length.steps) return length;
  length.steps = enough;
  if (t.max_steps)
    length.note = fmt::format(
        "train.max_steps = {} is not reached: train.max_tokens = {} is about {} step{}; raise "
        "train.max_tokens or set it to none",
        *t.max_steps, with_commas(*t.max_tokens), with_commas(enough), enough == 1 ? "" : "s");
  return length;
}

int64_t tokens_per_epoch(const RunLength& length, const data::SampleStore& samples) {
  const std::vector<data::SampleRange>& ranges = length.sampler.ranges;
  if (length.samples_per_epoch >= data::samples_of_epoch(samples, ranges))
    return std::llround(data::tokens_of_epoch(samples, ranges));
  return static_cast<int64_t>(tokens_per_sample(samples, ranges) *
                              static_cast<double>(length.samples_per_epoch));
}

}  // namespace snug::engine
