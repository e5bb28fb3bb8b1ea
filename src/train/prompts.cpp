// SPDX-License-Identifier: Apache-2.0
#include "train/prompts.h"

#include <utility>

#include "setup/reading.h"

namespace snug::train {
namespace {

// A sample of nothing to learn.
data::Sample unanswered(const models::Model& model, const data::TextEncoder& encoder,
                        const std::string& text, const data::Reading& reading) {
  return data::make_caption_sample(
      text, "", encoder,
      {.max_seq_length = model.dimensions().max_positions + reading.num_picture_tokens,
       .reading = reading});
}

}  // namespace

Prompt text_prompt(const models::Model& model, const data::TextEncoder& encoder,
                   const std::string& text) {
  data::Reading reading = setup::reading_of(model);
  if (!reading.source) return {.ids = encoder.encode_prompt(text)};
  reading.num_picture_tokens = 0;
  return sample_prompt(unanswered(model, encoder, text, reading), {});
}

Prompt picture_prompt(const models::Model& model, const data::TextEncoder& encoder,
                      const std::string& text, std::vector<uint8_t> picture) {
  return sample_prompt(unanswered(model, encoder, text, setup::reading_of(model)),
                       std::move(picture));
}

Prompt sample_prompt(data::Sample sample, std::vector<uint8_t> picture) {
  size_t prompt = 0;
  while (prompt < sample.ids.size() && sample.labels[prompt] != sample.ids[prompt]) ++prompt;
  sample.ids.resize(prompt);
  return {.ids = std::move(sample.ids), .picture = std::move(picture)};
}

}  // namespace snug::train
