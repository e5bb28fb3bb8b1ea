// The rows that a command runs through a model without training it, and what it finds.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>

#include "data/dataset.h"
#include "data/sample_store.h"
#include "data/survey.h"
#include "engine/language_model.h"
#include "recipe/options/commands.h"

namespace snug::use {

// Prompts are those of the model's training, where it is known.
data::DatasetOptions evaluated_options(const recipe::EvaluateOptions& options,
                                       const engine::LanguageModel& lm);

// Those of one split.
class EvaluatedRows {
 public:
  // Throws UserError if the split is empty, or a token is not in the model's embedding.
  EvaluatedRows(const recipe::EvaluateOptions& options, const data::DatasetOptions& read,
                const engine::LanguageModel& lm);

  const data::Dataset& dataset() const { return dataset_; }
  data::SampleStore& samples() { return held_out_ ? dataset_.validation : dataset_.train; }
  const data::SampleStore& samples() const {
    return held_out_ ? dataset_.validation : dataset_.train;
  }
  const data::PictureIndex& pictures() const {
    return held_out_ ? dataset_.validation_pictures : dataset_.train_pictures;
  }
  std::unique_ptr<data::BatchSource> batches() const {
    return held_out_ ? dataset_.validation_batches() : dataset_.train_batches();
  }
  // Of `samples`, those that max_iters lets through.
  int64_t num_taken(int64_t samples) const {
    return most_ > 0 ? std::min(most_, samples) : samples;
  }
  // The row of the file that a sample was made of, from 1.
  int64_t row_of(int64_t sample) const { return data::row_number(dataset_, {held_out_, sample}); }

 private:
  data::Dataset dataset_;
  bool held_out_;
  int64_t most_;  // samples; 0: all
};

// Throws UserError, naming `what`, for a number that is none.
void check_finite(double number, const std::string& what, const recipe::EvaluateOptions& options);

}  // namespace snug::use
