// What a row's technique did, in two sentences made from figures: which categories of memory
// changed against the row that it came from, by how much and to what; and what it cost in time.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "lab/result.h"

namespace snug::lab {

// Never empty. Of a row that ran out of memory: what took the most and how much was missing.
std::vector<std::string> explain(const LabRun& run, const Row& row);

// "train.micro_batch_size 32 → 8, precision 32-true → bf16-true".
std::string changes_text(const LabRun& run, const Row& row);

}  // namespace snug::lab
