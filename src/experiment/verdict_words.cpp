// SPDX-License-Identifier: Apache-2.0
#include "experiment/verdict_words.h"

#include <fmt/format.h>

#include <cmath>

#include "experiment/figures.h"

namespace snug::experiment {
namespace {

// Of the checks of one unit the farthest off; none where nothing is held.
void add_mark(const RowVerdict& verdict, FigureCheck::Unit unit, std::vector<FigureMark>& marks) {
  const char* kind = unit == FigureCheck::Unit::Bytes ? "memory" : "time";
  bool is_held = false, is_ranged = false;
  double farthest = 0;
  for (const FigureCheck& check : verdict.figures) {
    if (check.unit != unit || !check.is_held()) continue;
    is_held = true;
    is_ranged = is_ranged || (check.is_met() && !check.within_a_tenth());
    if (!check.is_met() && std::abs(check.deviation()) > std::abs(farthest))
      farthest = check.deviation();
  }
  if (!is_held) return;
  if (farthest != 0)
    marks.push_back({fmt::format("{} {}", kind, percent_text(farthest)), false});
  else
    marks.push_back({fmt::format("{} within {}", kind, is_ranged ? "the range" : "10 %"), true});
}

}  // namespace

std::string verdict_words(const LabRun& run, const Row& row, Verdict verdict) {
  if (verdict == Verdict::Unknown) return "";
  if (verdict != Verdict::AsExpected || !is_held_against_published(run)) return name(verdict);
  return row.expected == Expected::Unknown ? "same figures" : "same outcome";
}

const char* verdict_count_words(const LabRun& run, Verdict verdict) {
  if (verdict == Verdict::AsExpected)
    return is_held_against_published(run) ? "same as published" : "as expected";
  return name(verdict);
}

std::vector<FigureMark> figure_marks(const RowVerdict& verdict) {
  std::vector<FigureMark> out;
  add_mark(verdict, FigureCheck::Unit::Bytes, out);
  add_mark(verdict, FigureCheck::Unit::Seconds, out);
  return out;
}

const char* source_title(const LabRun& run) {
  return is_held_against_published(run) ? "Published" : "Expected";
}

std::vector<std::pair<std::string, std::string>> verdict_meanings(const LabRun& run) {
  if (!is_held_against_published(run))
    return {{"as expected",
             "the row ended as its suite expects, and what the suite says of its "
             "memory or time against another row's holds."},
            {"differs", "it did not."}};
  return {
      {"same outcome",
       "it fits where it was published to fit, or is out of memory where it was published to be; "
       "and no figure that decides is more than a tenth off."},
      {"same figures", "no outcome was published; the figures that were are met within a tenth."},
      {name(Verdict::BeyondIt),
       "published as out of memory, and the other program is counted to be; snug fits."},
      {"differs",
       "another outcome than published, or a figure that decides is more than a tenth "
       "off. What decides is the count of the program that was published; without one, "
       "snug's own planned memory."},
      {"memory, time",
       "a second mark beside the verdict: the published figures of that kind are "
       "all met within 10 % (or within the range that was counted), or how far off "
       "the farthest is. Where the other program's time is not counted, the time is "
       "snug's own; that does not decide."}};
}

}  // namespace snug::experiment
