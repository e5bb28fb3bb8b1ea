// SPDX-License-Identifier: Apache-2.0
#include "lab/report/explain.h"

#include <fmt/format.h>
#include <map>

#include <algorithm>

#include "lab/report/figures.h"

namespace snug::lab {
namespace {

std::string sentence_start(std::string text) {
  if (!text.empty() && text[0] >= 'a' && text[0] <= 'z')
    text[0] = static_cast<char>(text[0] - 'a' + 'A');
  return text;
}

// "activations take the most (30.1 GiB), then weights (4.10 GiB)"; empty without categories.
std::string what_takes_most(const Figures& figures) {
  std::vector<std::pair<int64_t, std::string>> parts;
  for (const std::string& category : categories_of({&figures}))
    parts.emplace_back(bytes_of(figures, category), category);
  std::stable_sort(parts.begin(), parts.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  if (parts.empty()) return "";
  const bool one = parts[0].second == "workspace";
  std::string out = fmt::format("{} {} the most ({})", category_words(parts[0].second),
                                one ? "takes" : "take", memory_text(parts[0].first));
  if (parts.size() > 1)
    out +=
        fmt::format(", then {} ({})", category_words(parts[1].second), memory_text(parts[1].first));
  return out;
}

// "block 12" -> "block ": of models with other numbers of blocks the same place.
std::string kind_of(const std::string& unit) {
  std::string out;
  for (const char c : unit)
    if (c < '0' || c > '9') out += c;
  return out;
}

class Explanation {
 public:
  Explanation(const LabRun& run, const Row& row, const RowResult& result)
      : run_(run), row_(row), result_(result), own_(own_figures(result)) {
    base_row_ = comparable_row(run, row);
    if (base_row_ != nullptr) base_ = run.find(base_row_->id);
    if (base_ == nullptr || own_ == nullptr) return;
    // One kind of figure beside the same kind.
    if (is_measured(result) == is_measured(*base_)) {
      before_ = own_figures(*base_);
    } else if (result.predicted && base_->predicted) {
      before_ = &*base_->predicted;
      own_ = &*result.predicted;
    }
  }

  std::vector<std::string> sentences() const {
    if (own_ == nullptr) return {without_figures()};
    std::vector<std::string> out;
    const bool fits = !is_out_of_memory();
    if (!fits) out.push_back(out_of_memory());
    if (before_ != nullptr) {
      if (has_moved()) out.push_back(where_now());
      out.push_back(against());
    } else if (fits) {
      out.push_back(alone());
    }
    if (before_ == nullptr && !row_.from.empty()) out.push_back(without_base());
    if (!fits) return out;
    if (std::string time = time_sentence(); !time.empty()) out.push_back(std::move(time));
    return out;
  }

 private:
  bool is_plan() const {
    return own_ != nullptr && result_.predicted && own_ == &*result_.predicted;
  }
  bool is_out_of_memory() const {
    return run_.mode == Mode::Plan ? result_.predicted && !result_.predicted->fits
                                   : result_.outcome == Outcome::OutOfMemory;
  }
  // Tables have no time either for a row that does not fit or did not finish.
  bool has_time(const RowResult& result) const {
    if (run_.mode == Mode::Plan) return result.predicted && result.predicted->fits;
    return result.outcome == Outcome::Ok;
  }

  // The peaks of two rows in different places of the step have different categories, whatever the
  // technique did to them. Blocks of models with more or fewer of them are one place.
  bool has_moved() const {
    const Moment* then = peak_moment(*base_, *before_);
    const Moment* now = peak_moment(result_, *own_);
    if (then == nullptr || now == nullptr) return false;
    if (then->phase != now->phase) return true;
    return base_row_->model == row_.model ? then->unit != now->unit
                                          : kind_of(then->unit) != kind_of(now->unit);
  }

  std::string where_now() const {
    return fmt::format(
        "The peak is now in {} (before: {}){}.", place_words(*peak_moment(result_, *own_)),
        place_words(*peak_moment(*base_, *before_)), is_plan() ? "" : ", as planned");
  }

  std::string without_base() const {
    const RowResult* base = run_.find(row_.from);
    const bool was_run = base != nullptr && base->outcome != Outcome::NotRun;
    return fmt::format("It is compared with {}, which {}.", row_.from,
                       !was_run                        ? "was not run"
                       : own_figures(*base) == nullptr ? "has no figures"
                                                       : "has other figures");
  }

  std::string without_figures() const {
    if (!row_.not_run.empty()) return fmt::format("Not run: {}.", row_.not_run);
    if (result_.outcome == Outcome::NotRun) return "Not run.";
    if (result_.reason.empty()) return fmt::format("No figures: {}.", name(result_.outcome));
    return fmt::format("No figures: {}.", result_.reason);
  }

  std::string out_of_memory() const {
    const Figures& f = *own_;
    std::string out;
    if (is_plan()) {
      const int64_t needed = needed_bytes(f);
      out = fmt::format("Out of memory: it needs {}", memory_text(needed));
      if (result_.limit_bytes > 0) {
        out += fmt::format("; available: {}", memory_text(result_.limit_bytes));
        if (needed > result_.limit_bytes)
          out += fmt::format(", so {} is missing", memory_text(needed - result_.limit_bytes));
      }
    } else {
      out = fmt::format("Out of memory: it took {}", memory_text(f.peak_allocated));
      if (result_.limit_bytes > 0) out += fmt::format(" of {}", memory_text(result_.limit_bytes));
    }
    const std::string most = what_takes_most(f);
    return out + (most.empty() ? "." : "; " + most + ".");
  }

  std::string alone() const {
    const bool is_reserved = own_->peak_reserved > 0;
    std::string out = fmt::format("The peak is {}{}", memory_text(needed_bytes(*own_)),
                                  is_reserved ? " reserved" : "");
    if (result_.limit_bytes > 0)
      out += fmt::format(" of {} available", memory_text(result_.limit_bytes));
    if (is_reserved) out += fmt::format(", with {} allocated", memory_text(own_->peak_allocated));
    const std::string most = what_takes_most(*own_);
    return out + (most.empty() ? "." : ": " + most + ".");
  }

  std::string against() const {
    const int64_t before = before_->peak_allocated, after = own_->peak_allocated;
    const std::string pair = memory_pair(before, after);
    std::string out = fmt::format("Compared with {}, ", base_row_->id);
    if (memory_text(before) == memory_text(after))
      out += fmt::format("peak memory stays at {}", memory_text(after));
    else
      out += fmt::format("peak memory {} ({})", after < before ? "falls" : "rises", pair);
    const bool moved = has_moved();
    const std::vector<std::string> clauses =
        moved ? category_clauses(at_their_most(*base_, *before_), at_their_most(result_, *own_))
              : category_clauses(*before_, *own_);
    if (!clauses.empty())
      out += (!moved      ? ": "
              : is_plan() ? "; by category, each at its highest: "
                          : "; by category, each at its highest as planned: ") +
             joined(clauses);
    out += width_clause(*base_, *before_, result_, *own_);
    if (is_plan()) out += host_clause(*before_, *own_);
    return out + ".";
  }

  std::string rate_words(const Figures& f) const {
    return f.tokens_per_second > 0 ? fmt::format("{} tokens/s", count_text(f.tokens_per_second))
                                   : std::string();
  }

  std::string time_sentence() const {
    // What was measured, also where only the plans' memory can be compared.
    const Figures* timed = own_figures(result_);
    if (timed == nullptr || timed->step_seconds <= 0 || !has_time(result_)) return "";
    const char* takes = is_measured(result_) ? "takes" : "would take";
    const std::string now = seconds_text(timed->step_seconds);
    std::string out = fmt::format("A step {} {}", takes, now);
    std::string rate = rate_words(*timed);
    const bool is_alike = timed == own_ && before_ != nullptr;
    if (is_alike && before_->step_seconds > 0 && has_time(*base_)) {
      const std::string then = seconds_text(before_->step_seconds);
      out += now == then ? ", as before" : fmt::format(" instead of {}", then);
      const std::string old_rate = rate_words(*before_);
      if (!rate.empty() && !old_rate.empty() && rate != old_rate)
        rate += fmt::format(" instead of {}", count_text(before_->tokens_per_second));
    }
    return out + (rate.empty() ? "." : fmt::format(" ({}).", rate));
  }

  const LabRun& run_;
  const Row& row_;
  const RowResult& result_;
  const Row* base_row_ = nullptr;
  const RowResult* base_ = nullptr;
  const Figures* own_ = nullptr;
  const Figures* before_ = nullptr;
};

constexpr size_t kMostOptions = 4;

// The row by this id, also one that was not asked for.
const Row* any_row(const LabRun& run, const std::string& id) {
  if (const Row* row = run.find_row(id); row != nullptr) return row;
  const auto found = std::find_if(run.suite.rows.begin(), run.suite.rows.end(),
                                  [&](const Row& row) { return row.id == id; });
  return found == run.suite.rows.end() ? nullptr : &*found;
}

std::map<std::string, std::string> last_values(const Settings& settings) {
  std::map<std::string, std::string> out;
  for (const auto& [key, value] : settings) out[key] = value;
  return out;
}

}  // namespace

std::vector<std::string> explain(const LabRun& run, const Row& row) {
  const RowResult* result = run.find(row.id);
  if (result == nullptr) return {"Not run."};
  std::vector<std::string> out = Explanation(run, row, *result).sentences();
  for (std::string& sentence : out) sentence = sentence_start(std::move(sentence));
  return out;
}

std::string changes_text(const LabRun& run, const Row& row) {
  if (!row.change.empty()) return row.change;
  if (row.from.empty() && !row.not_run.empty()) return "";  // listed alone, without its options
  const Row* base = row.from.empty() ? comparable_row(run, row) : any_row(run, row.from);
  if (base == nullptr) return "";
  std::vector<std::string> parts;
  if (base->model != row.model)
    parts.push_back(fmt::format("model {} → {}", base->model, row.model));
  auto before = last_values(base->options), after = last_values(row.options);
  if (base->model != row.model) {  // each has its recipe: that is the same change
    before.erase("config");
    after.erase("config");
  }
  for (const auto& [key, value] : after) {
    const auto old = before.find(key);
    if (old == before.end())
      parts.push_back(fmt::format("{} {}", key, value));
    else if (old->second != value)
      parts.push_back(fmt::format("{} {} → {}", key, old->second, value));
  }
  for (const auto& [key, value] : before)
    if (!after.contains(key)) parts.push_back(fmt::format("no {} {}", key, value));
  if (parts.size() > kMostOptions) {
    const size_t more = parts.size() - kMostOptions;
    parts.resize(kMostOptions);
    parts.push_back(fmt::format("{} more", more));
    return joined(parts, " and ");
  }
  return joined(parts, ", ");
}

}  // namespace snug::lab
