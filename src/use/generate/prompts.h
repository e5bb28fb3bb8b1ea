// Prompts as a model's training samples begin: with a picture's places, and for an encoder with the
// end of sequence that it is used to.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/prompts.h"
#include "data/sample.h"
#include "engine/language_model.h"
#include "models/model.h"
#include "use/generate/next_logits.h"

namespace snug::use {

Prompt text_prompt(const models::Model& model, const data::TextEncoder& encoder,
                   const std::string& text);

// `text` may be empty; the picture is (image_size, image_size, 3).
Prompt picture_prompt(const models::Model& model, const data::TextEncoder& encoder,
                      const std::string& text, std::vector<uint8_t> picture);

// How the model, or the adapter beside it (null: none), was asked in training; nothing: not known.
std::optional<data::PromptRecord> prompts_of_training(const engine::LanguageModel& lm,
                                                      const engine::LoadedAdapter* adapter);

// `chosen`, or for "auto" the style of training; where that is not known the model's chat template,
// and without one the prompt as it is.
data::PromptStyle style_of_prompts(const std::string& chosen, const engine::LanguageModel& lm,
                                   const engine::LoadedAdapter* adapter,
                                   const data::TextEncoder& encoder);

// All of a caption's sample that stands before what is learnt.
Prompt sample_prompt(data::Sample sample, std::vector<uint8_t> picture);

}  // namespace snug::use
