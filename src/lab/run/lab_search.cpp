// A lab run's searches: the largest value that fits, each try a row.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <deque>
#include <future>
#include <utility>

#include "lab/run/lab_run.h"
#include "lab/run/stop_wish.h"

namespace snug::lab {
namespace {

// Whether it fits; empty where it ended for another reason than memory.
std::optional<bool> answer_of(const RowResult& result) {
  if (result.outcome == Outcome::Ok) return true;
  if (result.outcome == Outcome::OutOfMemory) return false;
  return std::nullopt;
}

std::string edge_text(const Group& group, const Edge& edge) {
  const auto id = [&](int64_t value) { return search_row(group, value).id; };
  if (!edge.is_found) return "no answer, because a try ended for another reason than memory";
  if (!edge.fits) return fmt::format("even {} does not fit", id(group.smallest));
  if (!edge.too_large) return fmt::format("{} fits, the largest value to try", id(*edge.fits));
  return fmt::format("{} fits, {} does not", id(*edge.fits), id(*edge.too_large));
}

}  // namespace

LabRunner::PlannedSearch LabRunner::plan_search(const Group& group) const {
  PlannedSearch search;
  const auto fits = [&](int64_t value) -> std::optional<bool> {
    if (StopWish::wanted()) return std::nullopt;
    const Row row = search_row(group, value);
    std::optional<RowResult> kept = done_before(row);
    const bool is_kept = kept.has_value();
    if (!is_kept && folder_) folder_->clear_row(row.id);
    search.tries.push_back({row, is_kept ? std::move(*kept) : work_->plan(row), is_kept});
    return answer_of(search.tries.back().result);
  };
  search.edge = find_edge(group.smallest, group.largest, group.smallest, group.smallest, fits);
  return search;
}

// Within a search each try waits for the one before it, so that several go on at once.
void LabRunner::plan_searches() {
  std::deque<std::pair<const Group*, std::future<PlannedSearch>>> begun;
  const auto note_first = [&] {
    const Group& group = *begun.front().first;
    PlannedSearch search = begun.front().second.get();
    begun.pop_front();
    progress_->add_rows(static_cast<int>(search.tries.size()));
    for (Try& each : search.tries) note(each.row, std::move(each.result), each.is_kept);
    if (!stops()) say_edge(group, search.edge);
  };
  for (const Group& group : searches_) {
    if (stops()) break;
    progress_->show({.id = group.id, .doing = "planning", .live = {}});
    begun.emplace_back(
        &group, std::async(std::launch::async, [this, &group] { return plan_search(group); }));
    if (begun.size() >= at_once()) note_first();
  }
  while (!begun.empty()) note_first();
}

// Plans find the edge, which runs then confirm or move.
void LabRunner::run_search(const Group& group) {
  const auto plan_fits = [&](int64_t value) -> std::optional<bool> {
    if (stops()) return std::nullopt;
    const Row row = search_row(group, value);
    progress_->show({.id = row.id, .doing = "planning", .live = {}});
    return answer_of(work_->plan(row));
  };
  const auto run_fits = [&](int64_t value) -> std::optional<bool> {
    const Row row = search_row(group, value);
    progress_->add_rows(1);
    const std::optional<RowResult> result = do_row(row);
    return result ? answer_of(*result) : std::nullopt;
  };
  Edge edge = find_edge(group.smallest, group.largest, group.smallest, group.smallest, plan_fits);
  if (edge.is_found)
    edge =
        find_edge(group.smallest, group.largest, edge.fits.value_or(group.smallest), 1, run_fits);
  if (!stops()) say_edge(group, edge);
}

void LabRunner::say_edge(const Group& group, const Edge& edge) {
  progress_->say(fmt::format("{}: {}", group.id, edge_text(group, edge)));
}

}  // namespace snug::lab
