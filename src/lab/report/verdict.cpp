// SPDX-License-Identifier: Apache-2.0
#include "lab/report/verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lab/report/figures.h"

namespace snug::lab {
namespace {

constexpr double kTenth = 0.1;
constexpr double kRounding = 1e-9;

// One row under judgement: what was held against what gathers in `out`.
class Judge {
 public:
  Judge(const LabRun& run, const Row& row, const RowResult& result)
      : run_(run), row_(row), result_(result) {}

  RowVerdict verdict() {
    judge_outcome();
    judge_figures();
    for (const Comparison& comparison : row_.comparisons) judge(comparison);
    if (!is_judged(run_)) return unjudged();
    if (differs_)
      out_.verdict = Verdict::Differs;
    else if (is_beyond_)
      out_.verdict = Verdict::BeyondIt;
    else if (has_checked_)
      out_.verdict = Verdict::AsExpected;
    return out_;
  }

 private:
  // Published for other hardware.
  RowVerdict unjudged() const {
    RowVerdict out;
    out.figures = out_.figures;
    for (FigureCheck& check : out.figures) {
      check.compared = 0;
      check.decides = false;
    }
    return out;
  }

  void differ(std::string reason) {
    differs_ = true;
    out_.reasons.push_back(std::move(reason));
  }

  std::string limit_words() const {
    return result_.limit_bytes > 0 ? fmt::format(" of {}", memory_text(result_.limit_bytes))
                                   : std::string();
  }
  std::string need_words(const Figures& figures) const {
    const std::string close = close_text(figures, result_.limit_bytes);
    return memory_text(needed_bytes(figures)) + limit_words() + (close.empty() ? "" : ", " + close);
  }
  std::string source_words() const {
    return is_held_against_published(run_) ? "Published:" : "Expected:";
  }

  void judge_outcome() {
    if (row_.expected == Expected::Unknown) return;
    if (run_.mode == Mode::Plan)
      judge_planned_outcome();
    else
      judge_measured_outcome();
  }

  void judge_planned_outcome() {
    if (!result_.predicted) return;
    has_checked_ = true;
    const bool should_fit = row_.expected == Expected::Ok;
    const bool fits = result_.predicted->fits;
    if (result_.like && result_.like->fits != should_fit)
      differ(fmt::format("{} {}; {}'s count {}: {}.", source_words(),
                         should_fit ? "it fits" : "out of memory",
                         program_words(result_.like_program), should_fit ? "does not fit" : "fits",
                         need_words(*result_.like)));
    if (fits == should_fit) return;
    if (should_fit)
      differ(fmt::format("{} it fits; snug's plan does not: {}.", source_words(),
                         need_words(*result_.predicted)));
    else
      beyond(fmt::format("snug's plan fits: {}", need_words(*result_.predicted)));
  }

  void judge_measured_outcome() {
    const bool should_fit = row_.expected == Expected::Ok;
    if (result_.outcome == Outcome::Ok) {
      has_checked_ = true;
      if (!should_fit)
        beyond(result_.measured ? fmt::format("snug ran it in {}", need_words(*result_.measured))
                                : std::string("snug ran it"));
    } else if (result_.outcome == Outcome::OutOfMemory) {
      has_checked_ = true;
      if (should_fit)
        differ(fmt::format("{} it fits; here it ran out of memory{}.", source_words(),
                           result_.reason.empty() ? "" : ": " + result_.reason));
    }
  }

  // The source ran out of memory and snug does not. That counts as expected only if the computed
  // figures of the other program explain it.
  void beyond(const std::string& ours) {
    if (result_.like && !result_.like->fits) {
      is_beyond_ = true;
      const std::string available =
          result_.limit_bytes > 0
              ? fmt::format(" where {} is available", memory_text(result_.limit_bytes))
              : "";
      out_.reasons.push_back(fmt::format("{} out of memory, and {} would need {}{}; {}.",
                                         source_words(), program_words(result_.like_program),
                                         memory_text(needed_bytes(*result_.like)), available,
                                         ours));
    } else if (!result_.like) {
      differ(fmt::format("{} out of memory; {}.", source_words(), ours));
    }
  }

  void judge_figures() {
    if (run_.mode == Mode::Scaled) return;  // published at full size
    const Published& p = row_.published;
    const Figures* own = own_figures(result_);
    const Figures* memory = result_.like ? &*result_.like : own;
    const std::string with = result_.like ? result_.like_program : "snug";
    const auto bytes = [&](const char* what, double published, int64_t Figures::*field) {
      if (published <= 0) return;
      const double compared = memory == nullptr ? 0 : static_cast<double>(memory->*field);
      out_.figures.push_back({what, published, compared, with, FigureCheck::Unit::Bytes,
                              result_.like.has_value() || run_.mode == Mode::Plan});
    };
    bytes("weights", p.parameter_bytes.value_or(0), &Figures::parameter_bytes);
    bytes("after the forward", largest(p.allocated_after_forward), &Figures::after_forward);
    bytes("peak allocated", largest(p.peak_allocated), &Figures::peak_allocated);
    bytes("reserved", largest(p.reserved), &Figures::peak_reserved);
    for (const FigureCheck& check : out_.figures) decide(check);
    add_time(own, p);
  }

  // Times decide nothing: those of other programs are estimated like snug's own.
  void add_time(const Figures* own, const Published& published) {
    const double tokens = own == nullptr ? 0 : own->tokens_per_second * own->step_seconds;
    const double seconds = published.iteration_seconds   ? *published.iteration_seconds
                           : published.tokens_per_second ? tokens / *published.tokens_per_second
                                                         : 0;
    if (seconds <= 0) return;
    const bool is_theirs = result_.like && result_.like->step_seconds > 0;
    const double compared = is_theirs ? result_.like->step_seconds : own ? own->step_seconds : 0;
    out_.figures.push_back({"a step", seconds, compared, is_theirs ? result_.like_program : "snug",
                            FigureCheck::Unit::Seconds, false,
                            run_.mode == Mode::Plan && row_.time_is_fitted});
  }

  void decide(const FigureCheck& check) {
    if (!check.is_held() || !check.decides) return;
    has_checked_ = true;
    if (check.within_a_tenth()) return;
    const bool is_time = check.unit == FigureCheck::Unit::Seconds;
    const auto words = [&](double value) {
      return is_time ? seconds_text(value) : memory_text(std::llround(value));
    };
    differ(fmt::format("Published {}: {}; {}: {} ({}).", check.what, words(check.published),
                       check.with == "snug" ? "snug's own" : program_words(check.with) + "'s count",
                       words(check.compared), percent_text(check.deviation())));
  }

  // Both measured, or both counted of the same program, or both planned: never one kind beside
  // another.
  struct Pair {
    const Figures* mine = nullptr;
    const Figures* theirs = nullptr;
  };
  Pair of_one_kind(const RowResult& other, bool is_time) const {
    if (is_measured(result_) && is_measured(other)) return {&*result_.measured, &*other.measured};
    const bool both_counted =
        result_.like && other.like && result_.like_program == other.like_program;
    if (both_counted && !is_time) return {&*result_.like, &*other.like};
    if (result_.predicted && other.predicted) return {&*result_.predicted, &*other.predicted};
    return {};
  }

  void judge(const Comparison& comparison) {
    const RowResult* other = run_.find(comparison.than);
    if (other == nullptr) return;
    const bool is_time = comparison.quantity == Comparison::Quantity::Time;
    // A small model's time says nothing on a processor that others use as well.
    if (is_time && run_.mode == Mode::Scaled) return;
    const Pair pair = of_one_kind(*other, is_time);
    if (pair.mine == nullptr) return;
    const auto value = [&](const Figures& f) {
      return is_time ? f.step_seconds : static_cast<double>(f.peak_allocated);
    };
    const double mine = value(*pair.mine), theirs = value(*pair.theirs);
    if (mine <= 0 || theirs <= 0) return;
    has_checked_ = true;
    const bool holds = comparison.relation == Comparison::Relation::Less ? mine < theirs
                       : comparison.relation == Comparison::Relation::More
                           ? mine > theirs
                           : std::abs(mine / theirs - 1) <= kTenth + kRounding;
    if (holds) return;
    const auto words = [&](double v) {
      return is_time ? seconds_text(v) : memory_text(std::llround(v));
    };
    const char* relation = comparison.relation == Comparison::Relation::Less ? "less than"
                           : comparison.relation == Comparison::Relation::More
                               ? "more than"
                               : "about the same as";
    differ(fmt::format("{} should be {} that of {}, but is {}, and there {}.",
                       is_time ? "Time per step" : "Peak memory", relation, comparison.than,
                       words(mine), words(theirs)));
  }

  const LabRun& run_;
  const Row& row_;
  const RowResult& result_;
  RowVerdict out_;
  bool differs_ = false, is_beyond_ = false, has_checked_ = false;
};

}  // namespace

const char* name(Verdict verdict) {
  switch (verdict) {
    case Verdict::AsExpected:
      return "as expected";
    case Verdict::Differs:
      return "differs";
    case Verdict::BeyondIt:
      return "fits where the original did not";
    case Verdict::Unknown:
      break;
  }
  return "unknown";
}

bool FigureCheck::within_a_tenth() const {
  return is_held() && std::abs(deviation()) <= kTenth + kRounding;
}

bool is_judged(const LabRun& run) {
  return run.mode != Mode::Plan || run.suite.device.empty() ||
         run.record.device == run.suite.device;
}

bool is_held_against_published(const LabRun& run) {
  return run.mode != Mode::Scaled && has_source(run);
}

bool has_source(const LabRun& run) {
  return !run.suite.source.empty() || !run.record.source.empty() ||
         std::any_of(run.rows.begin(), run.rows.end(),
                     [](const Row& row) { return !row.published.empty(); });
}

RowVerdict verdict_of(const LabRun& run, const Row& row) {
  const RowResult* result = run.find(row.id);
  if (result == nullptr) return {};
  return Judge(run, row, *result).verdict();
}

namespace {

// The check of one unit that is farthest off; empty if nothing is compared.
void add_mark(const RowVerdict& verdict, FigureCheck::Unit unit, std::vector<FigureMark>& marks) {
  const char* kind = unit == FigureCheck::Unit::Bytes ? "memory" : "time";
  bool is_held = false, is_fitted = false;
  double farthest = 0;
  for (const FigureCheck& check : verdict.figures) {
    if (check.unit != unit || !check.is_held()) continue;
    is_held = true;
    is_fitted |= check.is_fitted;
    if (!check.within_a_tenth() && std::abs(check.deviation()) > std::abs(farthest))
      farthest = check.deviation();
  }
  if (!is_held) return;
  const char* fitted = is_fitted ? ", fitted" : "";
  if (farthest != 0)
    marks.push_back({fmt::format("{} {}{}", kind, percent_text(farthest), fitted), false});
  else
    marks.push_back({fmt::format("{} within 10 %{}", kind, fitted), true});
}

}  // namespace

std::string verdict_words(const LabRun& run, const Row& row, const RowVerdict& judged) {
  const Verdict verdict = judged.verdict;
  if (verdict == Verdict::Unknown) return "";
  if (verdict != Verdict::AsExpected || !is_held_against_published(run)) return name(verdict);
  const bool has_memory = std::ranges::any_of(judged.figures, [](const FigureCheck& check) {
    return check.is_held() && check.decides && check.unit == FigureCheck::Unit::Bytes;
  });
  const bool has_outcome = row.expected != Expected::Unknown;
  return has_outcome && has_memory ? "same outcome, memory"
         : has_memory              ? "same memory"
         : has_outcome             ? "same outcome"
                                   : "same relations";
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
    return {
        {"as expected",
         run.mode == Mode::Scaled
             ? "the row ended as its suite expects, and its memory relates to other rows as the "
               "suite states. Times are not judged: the models are small, and the processor "
               "may have other work."
             : "the row ended as its suite expects, and its memory or time relates to other "
               "rows as the suite states."},
        {"differs", "it did not."}};
  return {
      {"same outcome",
       "it fits if it was published to fit, and is out of memory if it was published so."},
      {"same outcome, memory; same memory",
       "every published figure of memory is met within a tenth as well, or alone."},
      {"same relations", "memory or time relates to other rows as the suite states."},
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
       "not counted, the time is snug's own and does not decide. Fitted: the shares of data "
       "sheets' "
       "rates that times are planned with were fitted on this published time."}};
}

}  // namespace snug::lab
