// `snug generate` and `snug chat`.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "recipe/options/commands.h"
#include "use/generate/generate_ids.h"

namespace snug::use {

// Prints answers; with options.json one JSON line per answer.
void generate(const recipe::GenerateOptions& options);

// From the options that generate, caption and chat share.
GenerationOptions generation_options(int64_t max_new_tokens, const SamplingOptions& sampling,
                                     const recipe::BeamOptions& beams, int64_t default_beams);

// Reads turns from standard input until it ends; keeps the conversation.
void chat(const recipe::GenerateOptions& options);

}  // namespace snug::use
