// SPDX-License-Identifier: Apache-2.0
#include "lab/report/verdict.h"

#include <fmt/format.h>

#include <cmath>

#include "lab/report/figures.h"

namespace snug::lab {
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
             "the row ended as its suite expects, and its memory or time relates to other rows as "
             "the suite states."},
            {"differs", "it did not."}};
  return {
      {"same outcome",
       "it fits if it was published to fit, and is out of memory if it was published so; no "
       "deciding figure is more than a tenth off."},
      {"same figures", "no outcome was published; the published figures are met within a tenth."},
      {name(Verdict::BeyondIt),
       "published as out of memory, and out of memory by the count of the other program too; snug "
       "fits."},
      {"differs",
       "the outcome is not the published one, or a deciding figure is more than a tenth off. The "
       "deciding figure is the count of the published program, or without one snug's own planned "
       "memory."},
      {"memory, time",
       "a second mark beside the verdict: all published figures of that kind are met within 10 % "
       "(or within the counted range), or the largest deviation. If the other program's time is "
       "not counted, the time is snug's own and does not decide."}};
}

}  // namespace snug::lab
