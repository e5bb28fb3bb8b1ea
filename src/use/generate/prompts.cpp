// SPDX-License-Identifier: Apache-2.0
#include "use/generate/prompts.h"

#include <utility>

#include "data/prompts.h"

namespace snug::use {
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
  data::Reading reading = model.reads();
  if (!reading.source) return {.ids = encoder.encode_prompt(text)};
  reading.num_picture_tokens = 0;
  return sample_prompt(unanswered(model, encoder, text, reading), {});
}

Prompt picture_prompt(const models::Model& model, const data::TextEncoder& encoder,
                      const std::string& text, std::vector<uint8_t> picture) {
  return sample_prompt(unanswered(model, encoder, text, model.reads()), std::move(picture));
}

std::optional<data::PromptRecord> prompts_of_training(const engine::LanguageModel& lm,
                                                      const engine::LoadedAdapter* adapter) {
  if (adapter != nullptr)
    if (auto record = data::read_prompt_record(adapter->name)) return record;
  return data::read_prompt_record(lm.path);
}

data::PromptStyle style_of_prompts(const std::string& chosen, const engine::LanguageModel& lm,
                                   const engine::LoadedAdapter* adapter,
                                   const data::TextEncoder& encoder) {
  if (chosen != "auto") return data::PromptStyle::make(chosen, encoder);
  if (const auto record = prompts_of_training(lm, adapter))
    return data::PromptStyle::make(record->style, encoder);
  return data::PromptStyle::make(encoder.chat ? "chat" : "plain", encoder);
}

Prompt sample_prompt(data::Sample sample, std::vector<uint8_t> picture) {
  size_t prompt = 0;
  while (prompt < sample.ids.size() && sample.labels[prompt] != sample.ids[prompt]) ++prompt;
  sample.ids.resize(prompt);
  return {.ids = std::move(sample.ids), .picture = std::move(picture)};
}

}  // namespace snug::use
