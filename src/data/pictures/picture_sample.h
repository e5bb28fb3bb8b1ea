// Samples of a picture that stands among text (Reading::pictures_anywhere).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "data/pictures/picture_text.h"
#include "data/sample.h"

namespace snug::data {

// `prompt` with kPictureMark for each of `count` pictures: as it is, or with all of them before it
// if it has none. Throws UserError for another number.
std::string with_marks(const std::string& prompt, int64_t count);

// Puts what stands for each picture in the place of its mark; `text` has one for each. Returns how
// many pictures, with their tiles, the model sees.
int64_t insert_pictures(std::string& text, std::span<const Grid> grids, int64_t places);

// Throws UserError if a sample's ids do not have the places of its pictures.
void check_places(const Sample& sample, const Reading& reading);

// `text` with what stands for each picture in the place of its mark, as ids without loss. Throws
// UserError if there are more or fewer marks than pictures, or if the tokenizer does not have the
// placeholder that the model's config names.
Sample make_question(std::string text, std::span<const Grid> grids, const TextEncoder& encoder,
                     const SampleOptions& options);

// How many tokens an answer may have behind this question: what max_seq_length leaves, or
// kCaptionTokens. Throws UserError if that is none.
int64_t room_for_answer(const Sample& question, const SampleOptions& options);

// A question about a picture and its answer, of which only the latter is learned. The picture
// stands where `prompt` has kPictureMark, or else before it. In the chat style both are turns; else
// the answer follows the prompt. Without max_seq_length an answer has up to kCaptionTokens. Throws
// UserError if picture and prompt leave no room for an answer, or if the tokenizer does not have
// the placeholder that the model's config names.
Sample make_picture_sample(const std::string& prompt, const std::string& answer, const Grid& grid,
                           const PromptStyle& style, const TextEncoder& encoder,
                           const SampleOptions& options);

}  // namespace snug::data
