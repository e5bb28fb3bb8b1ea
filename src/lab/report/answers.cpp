// A sheet for people to write on: what the rows gave, and questions with room for answers.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "lab/report/figures.h"
#include "lab/report/reports.h"
#include "lab/report/verdict.h"

namespace snug::lab {
namespace {

constexpr const char* kRoom = "\n   > \n\n";

// Planned figures are no answers: a row that was not run leaves its cells to be filled in.
std::string measured_cells(const LabRun& run, const RowView& view) {
  if (run.mode == Mode::Plan || view.outcome.kind == OutcomeView::Kind::None) return " | | | |";
  if (!is_measured(*view.result)) return fmt::format(" {} | – | – | – |", view.outcome.words);
  const Figures& figures = *view.own;
  return fmt::format(" {} | {} | {} | {} |", view.outcome.words,
                     figures.step_seconds > 0 ? seconds_text(figures.step_seconds) : "",
                     memory_text(needed_bytes(figures)),
                     use_text(figures.device_use, figures.device_use_spread));
}

const char* expected_words(Expected expected) {
  return expected == Expected::Ok            ? "fits"
         : expected == Expected::OutOfMemory ? "out of memory"
                                             : "–";
}

std::string rows_table(const LabRun& run, const std::vector<RowView>& views) {
  std::string out = fmt::format(
      "| row | what it is | {} | my guess | ended | time a step | memory | utilization |\n"
      "| --- | --- | --- | --- | --- | --- | --- | --- |\n",
      has_source(run) ? "published" : "expected");
  for (const RowView& view : views)
    out += fmt::format("| {} | {} | {} | |{}\n", markdown(view.row->id), markdown(view.row->title),
                       expected_words(view.row->expected), measured_cells(run, view));
  return out;
}

// What to say of a row beside the one that it differs from.
std::string question_of(const LabRun& run, const RowView& view) {
  const Row* before = comparable_row(run, *view.row);
  const bool other_end =
      is_full_size(run) && is_measured(*view.result) && view.row->expected == Expected::OutOfMemory;
  std::string question;
  if (before != nullptr)
    question = fmt::format(
        "**{}** beside **{}**{}: which figures change, by how much, and which bytes or operations "
        "are they?",
        markdown(view.row->id), markdown(before->id),
        view.changes.empty() ? "" : " (" + markdown(view.changes) + ")");
  if (other_end)
    question += fmt::format("{}{} **{}**. Why does it fit here?", question.empty() ? "" : " ",
                            has_source(run) ? "The original ran out of memory with"
                                            : "The suite expects too little memory for",
                            markdown(view.row->id));
  return question;
}

std::string question_of(const Group& group) {
  const std::string name = markdown(group.title.empty() ? group.id : group.title);
  if (group.kind == Group::Kind::Search)
    return fmt::format(
        "{}: which is the largest {} that fits, and what takes the memory of the next?", name,
        group.over);
  return fmt::format("{}: at which {} are there the most tokens a second, and what ends the rise?",
                     name, markdown(group.over));
}

}  // namespace

std::string answer_sheet(const LabRun& run) {
  const std::vector<RowView> all = views_of(run);
  const std::vector<RowView> views = without_tries(all);
  std::string out = fmt::format(
      "# Answer sheet: {}\n\nName: \\_\\_\\_\\_\\_\\_\\_\\_ &emsp; Date: "
      "\\_\\_\\_\\_\\_\\_\\_\\_ &emsp; Machine: {}\n\nWrite your guess before you run a row. "
      "Cells of rows that ran are filled in; memory is the peak that must fit.\n\n",
      markdown(run.record.title), markdown(run.record.hardware));
  out += rows_table(run, views) + "\n## Questions\n\n";
  int number = 0;
  for (const RowView& view : views)
    if (const std::string question = question_of(run, view); !question.empty())
      out += fmt::format("{}. {}\n{}", ++number, question, kRoom);
  for (const Group& group : run.suite.groups)
    if (!members_of(group, all).empty())
      out += fmt::format("{}. {}\n{}", ++number, question_of(group), kRoom);
  out += fmt::format(
      "{}. Of all techniques in this suite, which would you try first on a GPU with half the "
      "memory, "
      "and what does it cost in time?\n{}",
      ++number, kRoom);
  return out;
}

}  // namespace snug::lab
