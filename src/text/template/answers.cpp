// SPDX-License-Identifier: Apache-2.0
#include "text/template/answers.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "text/tokenizer/unicode.h"

namespace snug::tokenizer {
namespace {

using nlohmann::ordered_json;
using Answer = RenderedChat::Answer;

// How models begin a thought.
constexpr std::string_view kThoughts[] = {"<think>",         "<thinking>",          "<seed:think>",
                                          "[THINK]",         "<|START_THINKING|>",  "<reasoning>",
                                          "<|think|>",       "<|channel>thought",   "<thought>",
                                          "<|think_start|>", "<|begin_of_thought|>"};

// The text up to the beginning of a thought.
std::string_view before_thought(std::string_view text) {
  for (const std::string_view thought : kThoughts) text = text.substr(0, text.find(thought));
  return text;
}

bool is_blank(std::string_view text) { return trimmed(text).empty(); }

size_t common_length(std::string_view a, std::string_view b) {
  return static_cast<size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

// A stretch of the text that was printed for one turn.
struct Run {
  size_t begin, end;
  int64_t turn;
  bool generated;
};

// Blank ones are nobody's: loops that only look at the messages print line breaks. With
// `by_generation` runs that differ in it are apart.
std::vector<Run> runs_of(const jinja::Trace& trace, std::string_view text, bool by_generation) {
  std::vector<Run> runs;
  size_t begin = 0;
  for (const jinja::Trace::Piece& piece : trace.pieces) {
    if (!runs.empty() && runs.back().turn == piece.turn &&
        (!by_generation || runs.back().generated == piece.generated))
      runs.back().end = piece.end;
    else
      runs.push_back({begin, piece.end, piece.turn, piece.generated});
    begin = piece.end;
  }
  std::erase_if(runs, [&](const Run& run) {
    return !run.generated && is_blank(text.substr(run.begin, run.end - run.begin));
  });
  return runs;
}

class AnswerFinder {
 public:
  AnswerFinder(std::span<const Message> turns, const RenderTurns& render,
               const std::string& opening)
      : turns_(turns), render_(render), opening_(opening) {}

  RenderedChat run(bool template_marks_answers) {
    jinja::Trace trace;
    chat_.text = render_(turns_, false, &trace);
    runs_ = runs_of(trace, chat_.text, template_marks_answers);
    if (template_marks_answers)
      take_marked();
    else
      take_turns();
    note_what_is_left_out();
    std::ranges::stable_sort(chat_.left_out, {}, &RenderedChat::LeftOut::at);
    return std::move(chat_);
  }

 private:
  bool is_answer(size_t turn) const { return turns_[turn].role == "assistant"; }
  std::string_view text_of(const Run& run) const {
    return std::string_view(chat_.text).substr(run.begin, run.end - run.begin);
  }
  bool ends_with_answer() const { return !turns_.empty() && is_answer(turns_.size() - 1); }

  void take_marked() {
    std::optional<size_t> last;
    for (const Run& run : runs_) {
      if (!run.generated) continue;
      if (run.turn >= 0)
        last = static_cast<size_t>(run.turn);
      else
        last = next_answer(last);
      if (last && is_answer(*last)) chat_.answers.push_back({run.begin, run.end, *last});
    }
  }

  void take_turns() {
    std::vector<bool> found(turns_.size());
    for (const Run& run : runs_) {
      if (run.turn < 0 || !is_answer(static_cast<size_t>(run.turn))) continue;
      const auto turn = static_cast<size_t>(run.turn);
      const size_t skipped = found[turn] ? 0 : opening_length(turn, text_of(run));
      found[turn] = true;
      if (run.begin + skipped < run.end)
        chat_.answers.push_back({run.begin + skipped, run.end, turn});
    }
    bool all = true;
    for (size_t i = 0; i < turns_.size(); ++i)
      all = all && (found[i] || !is_answer(i) || is_blank(turns_[i].content));
    if (!all) take_by_marks(found);
    // What templates write behind all turns ends the last.
    if (ends_with_answer() && found.back() && !chat_.answers.empty() &&
        chat_.answers.back().turn + 1 == turns_.size())
      chat_.answers.back().end = chat_.text.size();
  }

  // The answer behind this one; the same one if it is the last: behind the loop stands its end.
  std::optional<size_t> next_answer(std::optional<size_t> last) const {
    for (size_t i = last ? *last + 1 : 0; i < turns_.size(); ++i)
      if (is_answer(i)) return i;
    return last;
  }

  // How much of an answer's run the prompt before it would have written.
  size_t opening_length(size_t turn, std::string_view text) {
    const auto before = turns_.first(turn);
    const bool is_asked = std::ranges::count(before, "user", &Message::role) > 0;
    if (!opening_.empty()) {
      // In front of the first turns templates write what is theirs, such as a default system text.
      const size_t at =
          is_asked ? (text.starts_with(opening_) ? 0 : text.npos) : text.find(opening_);
      if (at != text.npos) return at + opening_.size();
      if (is_asked) {
        // By whom it follows, or long chats would be rendered once a turn.
        const auto known = openings_.find(before.back().role);
        const std::string& own =
            known != openings_.end()
                ? known->second
                : openings_.emplace(before.back().role, opening_behind(before, render_))
                      .first->second;
        const size_t common = common_length(text, own);
        if (common > 0 && common >= own.find_last_not_of(" \t\r\n") + 1) return common;
        if (own.empty()) return 0;
      }
    }
    const std::string_view content = trimmed(turns_[turn].content);
    const size_t at = content.empty() ? text.npos : text.find(content);
    if (at == text.npos) return 0;
    const std::string_view front = before_thought(text.substr(0, at));
    return front.find_last_not_of(" \t\r\n") + 1;
  }

  // The same conversation with marks as the contents that were not found; then what lies between
  // them is looked for in the text, in order.
  void take_by_marks(const std::vector<bool>& found) {
    std::vector<Message> marked(turns_.begin(), turns_.end());
    std::vector<size_t> turns;
    for (size_t i = 0; i < marked.size(); ++i) {
      if (found[i] || !is_answer(i) || is_blank(marked[i].content)) continue;
      marked[i].content = mark_of("a", i);
      turns.push_back(i);
    }
    std::string around;
    try {
      around = render_(marked, false, nullptr);
    } catch (const UserError&) {
      return;
    }
    std::vector<Answer> answers;
    size_t from = 0, at = 0;
    for (const size_t turn : turns) {
      const std::string mark = mark_of("a", turn);
      const size_t end = around.find(mark, from);
      if (end == around.npos) return;
      const size_t begin = chat_.text.find(around.substr(from, end - from), at);
      if (begin == chat_.text.npos) return;
      if (!answers.empty()) answers.back().end = begin;
      at = begin + end - from;
      answers.push_back({at, chat_.text.size(), turn});
      from = end + mark.size();
    }
    if (!chat_.text.ends_with(around.substr(from))) return;
    answers.back().end = chat_.text.size() - (around.size() - from);
    chat_.answers.insert(chat_.answers.end(), answers.begin(), answers.end());
    std::ranges::sort(chat_.answers, {}, &Answer::begin);
  }

  bool has_run(size_t turn) const {
    return std::ranges::any_of(
        runs_, [&](const Run& run) { return run.turn == static_cast<int64_t>(turn); });
  }

  // All that the text has of a turn.
  std::string written_of(size_t turn) const {
    std::string text;
    for (const Run& run : runs_)
      if (run.turn == static_cast<int64_t>(turn)) text += text_of(run);
    if (!text.empty()) return text;
    for (const Answer& answer : chat_.answers)
      if (answer.turn == turn) text += chat_.text.substr(answer.begin, answer.end - answer.begin);
    return text;
  }

  size_t place_of(size_t turn) const {
    for (const Answer& answer : chat_.answers)
      if (answer.turn == turn) return answer.begin;
    size_t end = 0;
    for (const Run& run : runs_)
      if (run.turn >= 0 && run.turn < static_cast<int64_t>(turn)) end = std::max(end, run.end);
    return end;
  }

  void leave_out(size_t turn, std::string what, const std::string& words) {
    chat_.left_out.push_back({place_of(turn), turn, std::move(what), words});
  }

  // A text that no conversation has.
  static std::string mark_of(const char* what, size_t turn, size_t number = 0) {
    return fmt::format("\xEE\x80\x80{}{}.{}\xEE\x80\x81", what, turn, number);
  }

  static ordered_json* function_of(ordered_json& call) {
    if (!call.is_object()) return nullptr;
    ordered_json* function = call.contains("function") ? &call["function"] : &call;
    const bool is_named =
        function->is_object() && function->contains("name") && (*function)["name"].is_string();
    return is_named ? function : nullptr;
  }

  // The same conversation with marks as the thoughts and the names of what is called: whether a
  // short one is written cannot be seen otherwise. Nothing where there is none, or if it is
  // refused.
  std::optional<std::string> with_marks() const {
    std::vector<Message> marked(turns_.begin(), turns_.end());
    bool is_changed = false;
    for (size_t i = 0; i < marked.size(); ++i) {
      Message& turn = marked[i];
      if (!is_answer(i)) continue;
      if (const std::string thought = turn.thought(); !thought.empty()) {
        const size_t at = turn.content.find(thought);
        if (at != std::string::npos && at < turn.content.find("</think>"))
          turn.content.replace(at, thought.size(), mark_of("t", i));
        is_changed = true;
      }
      if (turn.more.empty()) continue;
      ordered_json more = ordered_json::parse(turn.more);
      for (const char* key : kThoughtKeys)
        if (more.contains(key) && more[key].is_string()) more[key] = mark_of("t", i);
      if (more.contains("tool_calls") && more["tool_calls"].is_array())
        for (size_t k = 0; k < more["tool_calls"].size(); ++k)
          if (ordered_json* function = function_of(more["tool_calls"][k])) {
            (*function)["name"] = mark_of("c", i, k);
            is_changed = true;
          }
      turn.more = more.dump();
    }
    if (!is_changed) return std::nullopt;
    try {
      return render_(marked, false, nullptr);
    } catch (const UserError&) {
      return std::nullopt;
    }
  }

  void note_what_is_left_out() {
    const std::optional<std::string> marked = with_marks();
    const auto is_written = [&](const std::string& mark) {
      return !marked || marked->find(mark) != std::string::npos;
    };
    for (size_t i = 0; i < turns_.size(); ++i) {
      const Message& turn = turns_[i];
      const std::string content = repair_utf8(trimmed(turn.content));
      if (!is_answer(i)) {
        if (!content.empty() && !has_run(i) && chat_.text.find(content) == std::string::npos)
          leave_out(i, "turn of role " + turn.role, content);
        continue;
      }
      if (!content.empty() && !turn.calls_are_content && written_of(i).empty())
        leave_out(i, "answer", content);
      if (const std::string thought = turn.thought();
          !thought.empty() && !is_written(mark_of("t", i)))
        leave_out(i, "thought", thought);
      if (turn.more.empty() || turn.calls_are_content) continue;
      ordered_json more = ordered_json::parse(turn.more);
      if (!more.contains("tool_calls") || !more["tool_calls"].is_array()) continue;
      for (size_t k = 0; k < more["tool_calls"].size(); ++k)
        if (ordered_json* function = function_of(more["tool_calls"][k]);
            function != nullptr && !is_written(mark_of("c", i, k)))
          leave_out(i, "call", function->dump());
    }
  }

  std::span<const Message> turns_;
  const RenderTurns& render_;
  const std::string& opening_;
  std::map<std::string, std::string> openings_;
  std::vector<Run> runs_;
  RenderedChat chat_;
};

}  // namespace

std::string opening_behind(std::span<const Message> turns, const RenderTurns& render) {
  try {
    jinja::Trace trace;
    const std::string closed = render(turns, false, nullptr), opened = render(turns, true, &trace);
    size_t begin = closed.size();
    if (!opened.starts_with(closed)) {
      // Some end every text that is no prompt.
      begin = 0;
      for (const Run& run : runs_of(trace, opened, false))
        if (run.turn >= 0) begin = run.end;
    }
    return std::string(before_thought(std::string_view(opened).substr(begin)));
  } catch (const UserError&) {
    return "";
  }
}

RenderedChat find_answers(std::span<const Message> turns, const RenderTurns& render,
                          const std::string& opening, bool template_marks_answers) {
  return AnswerFinder(turns, render, opening).run(template_marks_answers);
}

std::string Message::thought() const {
  if (!more.empty()) {
    const auto keys = nlohmann::ordered_json::parse(more);
    for (const char* key : kThoughtKeys)
      if (const auto own = keys.find(key); own != keys.end() && own->is_string())
        return repair_utf8(trimmed(own->get_ref<const std::string&>()));
  }
  constexpr std::string_view kBegin = "<think>", kEnd = "</think>";
  const size_t end = content.find(kEnd);
  if (end == std::string::npos) return "";
  std::string_view thought = std::string_view(content).substr(0, end);
  if (const size_t begin = thought.find(kBegin); begin != thought.npos)
    thought.remove_prefix(begin + kBegin.size());
  return repair_utf8(trimmed(thought));
}

bool Message::calls_tools() const {
  if (more.empty()) return false;
  const auto keys = nlohmann::ordered_json::parse(more);
  return keys.contains("tool_calls") || keys.contains("function_call");
}

}  // namespace snug::tokenizer
