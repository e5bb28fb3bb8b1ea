// Verdicts as people read them: how a row came out, how near its figures are to published ones, and
// what each of these words means.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "lab/report/verdict.h"

namespace snug::lab {

// "same outcome", "as expected", "differs", …; empty where nothing was expected.
std::string verdict_words(const LabRun& run, const Row& row, Verdict verdict);
// Behind a number of rows: "same as published".
const char* verdict_count_words(const LabRun& run, Verdict verdict);

// How near a row's figures of one kind are to the published ones, beside its verdict: "memory
// within 10 %", "time −92.0 %".
struct FigureMark {
  std::string words;
  bool is_met = false;
};
// One a kind of figure that is held against something.
std::vector<FigureMark> figure_marks(const RowVerdict& verdict);

// "Published", or of a suite that only expects: "Expected".
const char* source_title(const LabRun& run);

// Each word of a verdict or mark that a run's report may have, and what it means.
std::vector<std::pair<std::string, std::string>> verdict_meanings(const LabRun& run);

}  // namespace snug::lab
