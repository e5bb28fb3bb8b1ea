// The commands that are one function each.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "recipe/options/commands.h"

namespace snug::use {

// `snug bench collectives`: what the links between this run's devices give.
// Starts the processes that it takes, or is one of them. The exit code. `words` are those of the
// command line.
int bench(const recipe::BenchOptions& options, const std::vector<std::string>& words);

// `snug convert`: a checkpoint in another layout, one tensor in memory at a time.
void convert(const recipe::ConvertOptions& options);

// `snug evaluate`: loss and perplexity of a model on a file.
void evaluate(const recipe::EvaluateOptions& options);

// `snug merge`: an adapter folded into its base, as a model that needs no adapter.
void merge(const recipe::MergeOptions& options);

// `snug data show`: rows as training reads them, and what there is of them.
void show_data(const recipe::ShowDataOptions& options);

}  // namespace snug::use
