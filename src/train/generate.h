// `snug generate` and `snug chat`.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "config/commands.h"
#include "train/generate_ids.h"

namespace snug::train {

// Answers to standard output; with options.json one JSON line a sample.
void generate(const config::GenerateOptions& options);

// Of the options that generate, caption and chat share.
GenerationOptions generation_options(int64_t max_new_tokens, const SamplingOptions& sampling,
                                     const config::BeamOptions& beams, int64_t default_beams);

// Reads turns from standard input until its end; keeps the conversation.
void chat(const config::GenerateOptions& options);

}  // namespace snug::train
