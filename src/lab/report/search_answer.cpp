// SPDX-License-Identifier: Apache-2.0
#include "lab/report/search_answer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace snug::lab {
namespace {

int64_t value_of(const RowView& view) { return std::llround(view.row->value.value_or(0)); }

bool has_run_out(const std::vector<const RowView*>& tries, int64_t value) {
  return std::ranges::any_of(
      tries, [&](const RowView* view) { return ran_out(*view) && value_of(*view) == value; });
}

}  // namespace

std::vector<const RowView*> tries_of(const Group& search, const std::vector<RowView>& views) {
  std::vector<const RowView*> tries = members_of(search, views);
  std::erase_if(tries,
                [](const RowView* view) { return view->outcome.kind == OutcomeView::Kind::None; });
  std::ranges::stable_sort(tries, {}, [](const RowView* view) { return value_of(*view); });
  return tries;
}

bool is_answered(const Group& search, const std::vector<const RowView*>& tries) {
  const RowView* best = largest_that_fits(tries);
  if (best == nullptr) return has_run_out(tries, search.smallest);
  return value_of(*best) == search.largest || has_run_out(tries, value_of(*best) + 1);
}

std::string why_unanswered(const Group& search, const std::vector<const RowView*>& tries) {
  if (is_answered(search, tries)) return "";
  if (tries.empty()) return "not done with these options";
  for (const RowView* view : tries)
    if (view->outcome.kind == OutcomeView::Kind::Bad)
      return fmt::format("no answer, because {} ended as {}", value_text(search, *view),
                         view->outcome.words);
  return "no answer yet";
}

}  // namespace snug::lab
