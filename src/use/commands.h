// The commands that consist of one function each.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "recipe/options/commands.h"

namespace snug::use {

// `snug bench collectives`: measures the links between this run's devices. Starts the processes, or
// is one of them. `words` is the command line. Returns the exit code.
int bench(const recipe::BenchOptions& options, const std::vector<std::string>& words);

// `snug convert`: writes a checkpoint in another layout, with one tensor in memory at a time.
void convert(const recipe::ConvertOptions& options);

// `snug evaluate`: loss and perplexity of a model on a file, and scores of its captions.
void evaluate(const recipe::EvaluateOptions& options);

// `snug download`: the files of a repository on a hub.
void download(const recipe::DownloadOptions& options);

// `snug generate`: prints answers; with options.json one JSON line per answer.
void generate(const recipe::GenerateOptions& options);

// `snug chat`: reads turns from standard input until it ends; keeps the conversation.
void chat(const recipe::GenerateOptions& options);

// `snug merge`: adds an adapter to its base model and writes the result.
void merge(const recipe::MergeOptions& options);

// `snug data show`: rows as training sees them, and counts over all rows.
void show_data(const recipe::ShowDataOptions& options);

// `snug verify`: compares the files of a run or a model with their checksums. Throws UserError if
// one is damaged or missing, or nothing has checksums.
void verify(const recipe::VerifyOptions& options);

}  // namespace snug::use
