// `snug generate` and `snug chat`.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "config/commands.h"

namespace snug::train {

// Answers to standard output; with options.json one JSON line a sample.
void generate(const config::GenerateOptions& options);

// Reads turns from standard input until its end; keeps the conversation.
void chat(const config::GenerateOptions& options);

}  // namespace snug::train
