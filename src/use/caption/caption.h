// `snug caption`: captions for pictures.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <vector>

#include "recipe/options/commands.h"
#include "use/generate/text_generator.h"

namespace snug::use {

// Returns the exit code: 2 if a picture could not be read, else 0.
int caption(const recipe::CaptionOptions& options);

// The answers to prompts with pictures, each on one line without spaces at its ends.
std::vector<std::string> write_captions(TextGenerator& generator, std::span<const Prompt> prompts,
                                        const GenerationOptions& options, int64_t batch_size);

}  // namespace snug::use
