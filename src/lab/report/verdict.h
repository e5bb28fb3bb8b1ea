// Whether a row's outcome is what its suite expects, and how far its figures are from published
// ones.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lab/result.h"

namespace snug::lab {

enum class Verdict {
  AsExpected,
  Differs,   // `reasons` say how
  BeyondIt,  // published as out of memory, which the other program's computed figures confirm; snug
             // fits
  Unknown,   // nothing was expected, or the row has no outcome to compare
};
const char* name(Verdict verdict);

// One published figure and the figure that it is compared with.
struct FigureCheck {
  enum class Unit { Bytes, Seconds };
  std::string what;      // "reserved", "after the forward", …
  double published = 0;  // the largest of several ranks
  double compared = 0;   // computed for the published program, else snug's own; 0: none
  std::string with;      // "litgpt", "lightning", "snug"
  Unit unit = Unit::Bytes;
  bool decides = true;     // false for snug's own time: another program was timed
  bool is_fitted = false;  // a planned time whose shares of data sheets' rates were fitted on it
  bool is_held() const { return compared > 0 && published > 0; }
  double deviation() const { return compared / published - 1; }
  bool within_a_tenth() const;
};

// Whether rows are compared with published outcomes: the suite has a source, and the run is of full
// size. Otherwise they are compared with what the suite expects.
bool is_held_against_published(const LabRun& run);
bool has_source(const LabRun& run);  // whatever the run's size

struct RowVerdict {
  Verdict verdict = Verdict::Unknown;
  std::vector<std::string> reasons;  // sentences
  std::vector<FigureCheck> figures;
};

// False if rows are planned for another device than the suite's: then they have no verdict.
bool is_judged(const LabRun& run);

// In plan mode the published outcome is compared with the figures computed for the program that it
// was published for.
RowVerdict verdict_of(const LabRun& run, const Row& row);

// What was judged: "same outcome, memory", "as expected", "differs", …; empty if nothing
// was expected.
std::string verdict_words(const LabRun& run, const Row& row, const RowVerdict& verdict);
// After a number of rows: "same as published".
const char* verdict_count_words(const LabRun& run, Verdict verdict);

// How close a row's figures of one kind are to the published ones: "memory within 10 %",
// "time −92.0 %".
struct FigureMark {
  std::string words;
  bool is_met = false;
};
// One per kind of figure that is compared.
std::vector<FigureMark> figure_marks(const RowVerdict& verdict);

// "Published", or "Expected" for a suite without a source.
const char* source_title(const LabRun& run);

// The verdicts and marks in a run's report, each with its meaning.
std::vector<std::pair<std::string, std::string>> verdict_meanings(const LabRun& run);

}  // namespace snug::lab
