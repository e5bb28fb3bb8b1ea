// Sample answers where the questions are pictures.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "train/sample_answers.h"
#include "use/caption/evaluate_captions.h"

namespace snug::train {

std::vector<SampleAnswer> caption_held_out(const engine::Engine& engine, models::Model& model,
                                           const tokenizer::Tokenizer& tokenizer,
                                           const data::Dataset& dataset,
                                           const SampleAnswerOptions& options) {
  if (!dataset.validation_pictures.rows || options.count <= 0) return {};
  const int64_t longest = dataset.validation.longest() + options.max_new_tokens;
  model.prepare(engine.device, std::min(model.dimensions().max_positions, longest));
  use::TextGenerator generator(*engine.executor, model, tokenizer, engine.precision.compute);
  const use::CaptionSet set{dataset.validation, dataset.validation_pictures, dataset.processor};
  std::vector<SampleAnswer> answers;
  for (use::WrittenCaption& written : use::caption_samples(
           generator, set,
           {.max_new_tokens = options.max_new_tokens, .sampling = {.temperature = 0}},
           options.count, options.count))
    answers.push_back(
        {std::move(written.picture), written.references.front(), std::move(written.caption)});
  return answers;
}

}  // namespace snug::train
