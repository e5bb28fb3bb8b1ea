// Prompts in the form of training samples: with a picture's placeholders, and for an encoder with
// an end-of-sequence token. Also the prompt that the user gives, and its style.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/pictures/picture_processor.h"
#include "data/prompts.h"
#include "data/sample.h"
#include "engine/language_model.h"
#include "models/model.h"
#include "use/generate/next_logits.h"

namespace snug::use {

// Throws UserError if the model cannot read pictures. `name`: of the model, for the message.
void check_reads_pictures(const models::Model& model, const std::string& name);

Prompt text_prompt(const models::Model& model, const data::TextEncoder& encoder,
                   const std::string& text);

// `text` may be empty. The style counts for models whose pictures stand among text.
Prompt picture_prompt(const models::Model& model, const data::TextEncoder& encoder,
                      const data::PromptStyle& style, const std::string& text,
                      data::PreparedPicture picture);

// `text`: as a style has formatted it, with a mark for each picture where the model has pictures
// among its text. Throws UserError for a number of pictures that the model does not take.
Prompt prompt_with_pictures(const models::Model& model, const data::TextEncoder& encoder,
                            const std::string& text, std::vector<data::PreparedPicture> pictures);

// How prompts were formatted in the training of the model, or of the adapter (null: none);
// std::nullopt: unknown.
std::optional<data::PromptRecord> prompts_of_training(const engine::LanguageModel& lm,
                                                      const engine::LoadedAdapter* adapter);

// `given`, or of a chat the system message with which all rows of the training began; empty: none.
std::string system_message(const std::optional<std::string>& given, const data::PromptStyle& style,
                           const engine::LanguageModel& lm, const engine::LoadedAdapter* adapter);

// `chosen`, or for "auto" the style of training; if that is unknown, the model's chat template or,
// if there is none, the plain prompt.
data::PromptStyle style_of_prompts(const std::string& chosen, const engine::LanguageModel& lm,
                                   const engine::LoadedAdapter* adapter,
                                   const data::TextEncoder& encoder);

// The same for questions about pictures: for "auto" the chat template if the model has pictures
// among its text and was not trained otherwise, else the plain prompt.
data::PromptStyle style_of_questions(const std::string& chosen, const engine::LanguageModel& lm,
                                     const engine::LoadedAdapter* adapter,
                                     const data::TextEncoder& encoder);

// The tokens of a caption sample before the first one with loss.
Prompt sample_prompt(data::Sample sample, std::vector<uint8_t> picture);

// A program that writes the prompt may take a while, but may also never write one.
inline constexpr double kPatienceSeconds = 60;

// The text of a pipe or file, without line feeds at its end; std::nullopt for a terminal or an
// empty text. Throws UserError if a pipe sends nothing for `seconds`.
std::optional<std::string> text_of_input(int descriptor, double seconds);

// The prompt of `snug generate`: `given`, or the text on standard input. Throws UserError without
// either.
std::string given_prompt(const std::optional<std::string>& given);

}  // namespace snug::use
