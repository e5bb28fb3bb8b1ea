// Whether a row came out as its suite expects, and how far its figures are from published ones.
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
  Differs,   // and `reasons` say how
  BeyondIt,  // published as out of memory; snug fits, and the other program is counted as not
             // fitting
  Unknown,   // nothing was expected, or the row did not get that far
};
const char* name(Verdict verdict);

// One published figure beside what it is held against.
struct FigureCheck {
  enum class Unit { Bytes, Seconds };
  std::string what;      // "reserved", "after the forward", …
  double published = 0;  // of several ranks the largest
  double compared = 0;   // count of the program it was published for, else snug's own; 0: none
  double at_least = 0;   // a count that is a range up to `compared`: its lower end; 0: it is none
  std::string with;      // "litgpt", "lightning", "snug"
  Unit unit = Unit::Bytes;
  bool decides = true;  // snug's own time does not decide: another program was timed
  bool is_held() const { return compared > 0 && published > 0; }
  double deviation() const { return compared / published - 1; }
  bool within_a_tenth() const;
  bool within_range() const;  // between the two ends of a count that is one
  bool is_met() const { return within_a_tenth() || within_range(); }
};

// Whether the suite tells of something published, and the run is of the same size: else its rows
// are held against what the suite expects of them.
bool is_held_against_published(const LabRun& run);
bool has_source(const LabRun& run);  // whatever the run's size

struct RowVerdict {
  Verdict verdict = Verdict::Unknown;
  std::vector<std::string> reasons;  // sentences
  std::vector<FigureCheck> figures;
};

// Planned for another device than the suite's, rows are beside what was published and not held
// against it.
bool is_judged(const LabRun& run);

// In plan mode the published outcome is held against the count of the program that it was published
// for.
RowVerdict verdict_of(const LabRun& run, const Row& row);

// As people read them (verdict_words.cpp).

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
