// A sheet for people to write on: what the rows gave, and questions with room for answers.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "lab/report/figures.h"
#include "lab/report/reports.h"
#include "lab/report/verdict.h"

namespace snug::lab {
namespace {

constexpr const char* kRoom = "\n     > \n\n";

std::string figure_cells(const LabRun& run, const RowView& view) {
  if (view.outcome.kind == OutcomeView::Kind::None) return " | | | |";
  const bool is_known =
      view.own != nullptr && (run.mode == Mode::Plan || is_measured(*view.result));
  if (!is_known) return fmt::format(" {} | – | – | – |", view.outcome.words);
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
      "| row | what it is | {} | my guess | {} | step time | memory | utilization |\n"
      "| --- | --- | --- | --- | --- | --- | --- | --- |\n",
      has_source(run) ? "published" : "expected", run.mode == Mode::Plan ? "planned" : "ended");
  for (const RowView& view : views)
    out += fmt::format("| {} | {} | {} | |{}\n", markdown(view.row->id), markdown(view.row->title),
                       expected_words(view.row->expected), figure_cells(run, view));
  return out;
}

// A question once, and what it is asked of, each with room for an answer.
struct Question {
  std::string text;
  std::vector<std::string> of;
};

void ask(std::vector<Question>& questions, const std::string& text, const std::string& of) {
  const auto same = std::ranges::find(questions, text, &Question::text);
  if (same == questions.end())
    questions.push_back({text, {of}});
  else
    same->of.push_back(of);
}

void ask_of_rows(const LabRun& run, const std::vector<RowView>& views,
                 std::vector<Question>& questions) {
  for (const RowView& view : views)
    if (const Row* before = comparable_row(run, *view.row); before != nullptr)
      ask(questions, "Which figures change, by how much, and which bytes or operations are they?",
          fmt::format("**{}** beside **{}**{}", markdown(view.row->id), markdown(before->id),
                      view.changes.empty() ? "" : ": " + markdown(view.changes)));
  for (const RowView& view : views)
    if (is_full_size(run) && is_measured(*view.result) &&
        view.row->expected == Expected::OutOfMemory)
      ask(questions,
          has_source(run) ? "Why does it fit here, where the original ran out of memory?"
                          : "Why does it fit here, where the suite expects too little memory?",
          fmt::format("**{}**", markdown(view.row->id)));
}

void ask_of_groups(const LabRun& run, const std::vector<RowView>& views,
                   std::vector<Question>& questions) {
  for (const Group& group : run.suite.groups)
    if (!members_of(group, views).empty())
      ask(questions,
          group.kind == Group::Kind::Search
              ? "Which is the largest that fits, and what takes the memory of the next?"
              : "Where are the most tokens a second, and what ends the rise?",
          fmt::format("{}, over {}", markdown(group.title.empty() ? group.id : group.title),
                      markdown(group.over)));
}

}  // namespace

std::string worksheet(const LabRun& run) {
  const std::vector<RowView> all = views_of(run);
  const std::vector<RowView> views = without_tries(all);
  std::string out = fmt::format(
      "# Worksheet: {}\n\nName: \\_\\_\\_\\_\\_\\_\\_\\_ &emsp; Date: "
      "\\_\\_\\_\\_\\_\\_\\_\\_ &emsp; Machine: {}\n\nWrite your guess before you {} a row. "
      "Cells of rows that {} are filled in; memory is the peak that must fit.\n\n",
      markdown(run.record.title), markdown(run.record.hardware),
      run.mode == Mode::Plan ? "look at" : "run", run.mode == Mode::Plan ? "were planned" : "ran");
  out += rows_table(run, views) + "\n## Questions\n\n";
  std::vector<Question> questions;
  ask_of_rows(run, views, questions);
  ask_of_groups(run, all, questions);
  ask(questions,
      "Of all techniques in this suite, which would you try first on a GPU with half the memory, "
      "and what does it cost in time?",
      "");
  int number = 0;
  for (const Question& question : questions) {
    out += fmt::format("{}. {}\n", ++number, question.text);
    for (const std::string& of : question.of)
      out += (of.empty() ? "" : "\n   - " + of + "\n") + std::string(kRoom);
  }
  return out;
}

}  // namespace snug::lab
