// SPDX-License-Identifier: Apache-2.0
#include "data/rows/preference_rows.h"

#include <algorithm>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/error.h"
#include "data/rows/rated_rows.h"
#include "data/rows/row_from_json.h"
#include "data/rows/row_pictures.h"

namespace snug::data {
namespace {

using json = nlohmann::ordered_json;

struct Names {
  const char *chosen, *rejected;
};
constexpr Names kNames[] = {{"chosen", "rejected"},
                            {"chosen_response", "rejected_response"},
                            {"chosen_messages", "rejected_messages"},
                            {"chosen_answer", "rejected_answer"},
                            {"chosen_completion", "rejected_completion"}};
// Where the question stands that both answer, and what an answer to it is called.
struct PromptNames {
  const char *question, *answer;
};
constexpr PromptNames kPrompts[] = {{"prompt", "completion"},
                                    {"instruction", "output"},
                                    {"question", "answer"},
                                    {"query", "answer"},
                                    {"input", "output"}};

bool is_chat_column(const std::string& name) {
  return std::ranges::any_of(kChatKeys, [&](const char* chat) { return name == chat; });
}

struct Sides {
  json chosen, rejected;
};

// An answer as turns: a text, a turn, or turns.
json turns_of(const json& answer) {
  if (answer.is_array()) return answer;
  if (answer.is_object()) return json::array({answer});
  return json::array({json{{"role", "assistant"}, {"content", answer}}});
}

// Turns of one speaker each: of pairs of a question and an answer, and of texts that alternate.
json single_turns(const json& turns) {
  json single = json::array();
  const auto add = [&](const json& text) {
    if (!text.is_null())
      single.push_back(
          {{"role", single.size() % 2 == 0 ? "user" : "assistant"}, {"content", text}});
  };
  for (const json& turn : turns) {
    if (turn.is_object()) single.push_back(turn);
    if (turn.is_string()) add(turn);
    if (turn.is_array()) std::ranges::for_each(turn, add);
  }
  return single;
}

bool is_of(const json& turn, std::initializer_list<const char*> roles) {
  if (!turn.is_object()) return false;
  for (const char* key : {"role", "from"})
    if (const json* role = field(turn, key); role != nullptr && role->is_string())
      for (const char* name : roles)
        if (*role == name) return true;
  return false;
}
bool speaks_last(const json& turn) { return is_of(turn, {"assistant", "gpt", "bot", "model"}); }

// Whether turns are a whole conversation, and no answer alone.
bool begins_with_question(const json& turns) {
  if (!turns.is_array()) return false;
  const auto first = std::ranges::find_if_not(turns, [](const json& turn) {
    return is_of(turn, {"system", "developer"});
  });
  return first != turns.end() && is_of(*first, {"user", "human"});
}

// What both begin with, as TRL's extract_prompt cuts it: of texts without the space before the
// answers. Nothing is left of one that is the other's beginning: its last part stays.
size_t common_turns(const json& a, const json& b) {
  const size_t least = std::min(a.size(), b.size());
  size_t count = 0;
  while (count < least && a[count] == b[count]) ++count;
  return count == least && count > 0 ? count - 1 : count;
}

size_t common_bytes(const std::string& a, const std::string& b) {
  const auto is_inside = [](unsigned char c) { return (c & 0xC0) == 0x80; };
  const size_t least = std::min(a.size(), b.size());
  size_t count = static_cast<size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
  if (count == least && count > 0) --count;
  while (count > 0 && (is_inside(static_cast<unsigned char>(a[count])) ||
                       (count < b.size() && is_inside(static_cast<unsigned char>(b[count])))))
    --count;
  return count > 0 && a[count - 1] == ' ' ? count - 1 : count;
}

json slice(const json& turns, size_t begin, size_t end) {
  return {turns.begin() + static_cast<std::ptrdiff_t>(begin),
          turns.begin() + static_cast<std::ptrdiff_t>(end)};
}

// The object with a prompt and this completion, and nothing else that says what is asked.
json with(const json& rest, json prompt, json completion) {
  json object = rest;
  for (const char* key : kChatKeys) object.erase(key);
  object["prompt"] = std::move(prompt);
  object["completion"] = std::move(completion);
  return object;
}

Sides of_common_prompt(const json& rest, const json& chosen, const json& rejected,
                       const std::string& where) {
  json own = rest;
  for (const PromptNames& names : kPrompts) own.erase(names.question);
  if (chosen.is_array() && rejected.is_array()) {
    const size_t count = common_turns(chosen, rejected);
    if (count == 0)
      throw UserError(
          "{}: \"chosen\" and \"rejected\" begin with different turns; give their "
          "question as \"prompt\", or let both begin with it",
          where);
    const json prompt = slice(chosen, 0, count);
    return {with(own, prompt, slice(chosen, count, chosen.size())),
            with(own, prompt, slice(rejected, count, rejected.size()))};
  }
  if (!chosen.is_string() || !rejected.is_string())
    throw UserError(
        "{}: \"chosen\" is {} {} and \"rejected\" {} {}; both are texts, or both lists "
        "of turns",
        where, chosen.is_array() ? "an" : "a", chosen.type_name(), rejected.is_array() ? "an" : "a",
        rejected.type_name());
  const auto &a = chosen.get_ref<const std::string&>(), &b = rejected.get_ref<const std::string&>();
  const size_t count = common_bytes(a, b);
  return {with(own, a.substr(0, count), a.substr(count)),
          with(own, b.substr(0, count), b.substr(count))};
}

Sides after_chat(const json& rest, const char* key, const json& chat, const json* chosen,
                 const json& rejected, const std::string& where) {
  if (!chat.is_array())
    throw UserError("{}: \"{}\" must be an array of turns, but is a {}", where, key,
                    chat.type_name());
  const json turns = single_turns(chat);
  // ms-swift's turns end with the better answer.
  const bool ends_with_chosen = chosen == nullptr;
  if (ends_with_chosen && (turns.empty() || !speaks_last(turns.back())))
    throw UserError(
        "{}: \"rejected_response\" stands beside \"{}\" that does not end with an "
        "answer, the better one",
        where, key);
  const json prompt = slice(turns, 0, turns.size() - (ends_with_chosen ? 1 : 0));
  const json better = ends_with_chosen ? json::array({turns.back()}) : turns_of(*chosen);
  return {with(rest, prompt, better), with(rest, prompt, turns_of(rejected))};
}

// A turn that asks it, with the text that it is asked of.
json asking(const json& question, json& rest) {
  json asked = question;
  for (const char* key : {"input", "context"})
    if (const json* input = field(rest, key);
        input != nullptr && input->is_string() && asked.is_string()) {
      const auto text = input->get<std::string>();
      if (!text.empty()) asked = asked.get<std::string>() + "\n\n" + text;
      rest.erase(key);
    }
  return {{"role", "user"}, {"content", asked}};
}

Sides after_question(const json& rest, const PromptNames& names, const json& chosen,
                     const json& rejected) {
  const json& asked = rest[names.question];
  if (asked.is_array() || chosen.is_structured() || rejected.is_structured()) {
    json own = rest;
    own.erase(names.question);
    const json prompt = asked.is_array() ? asked : json::array({asking(asked, own)});
    return {with(own, prompt, turns_of(chosen)), with(own, prompt, turns_of(rejected))};
  }
  // Some repeat their prompt.
  const auto starts = [&](const json& answer) {
    if (!asked.is_string()) return false;
    const auto& prompt = asked.get_ref<const std::string&>();
    return !prompt.empty() && answer.get_ref<const std::string&>().starts_with(prompt);
  };
  if (starts(chosen) && starts(rejected)) {
    const size_t length = asked.get_ref<const std::string&>().size();
    return {with(rest, asked, chosen.get<std::string>().substr(length)),
            with(rest, asked, rejected.get<std::string>().substr(length))};
  }
  Sides sides{rest, rest};
  sides.chosen[names.answer] = chosen;
  sides.rejected[names.answer] = rejected;
  return sides;
}

void check_answer(const json& answer, const char* which, const std::string& where) {
  if (!answer.is_string() && !answer.is_structured())
    throw UserError("{}: the {} answer is a {}; it is a text, or turns", where, which,
                    answer.type_name());
}

[[noreturn]] void say_what_is_missing(const json& object, const std::string& where) {
  for (const std::string& key : rating_columns())
    if (const json* verdict = field(object, key); verdict != nullptr && is_verdict(*verdict))
      throw UserError(
          "{}: the column \"{}\" rates one answer good or bad, which --objective kto learns from; "
          "this one has a \"chosen\" and a \"rejected\" answer to the same question",
          where, key);
  throw UserError(
      "{}: no \"rejected\"; a row of preferences has \"chosen\" and \"rejected\", and \"prompt\" "
      "where "
      "both do not begin with it; rows with one answer are for --objective sft",
      where);
}

Sides sides_of(const json& object, const std::string& where) {
  const json *chosen = nullptr, *rejected = nullptr;
  for (const auto& [better, worse] : kNames) {
    if (chosen == nullptr) chosen = field(object, better);
    if (rejected == nullptr) rejected = field(object, worse);
  }
  if (rejected == nullptr) say_what_is_missing(object, where);
  check_answer(*rejected, "rejected", where);
  if (chosen != nullptr) check_answer(*chosen, "chosen", where);
  json rest = json::object();
  for (const auto& item : object.items())
    if (!is_preference_column(item.key()) && !is_foreign_column(item.key()))
      rest[item.key()] = item.value();
  for (const char* key : kChatKeys)
    if (const json* turns = field(rest, key); turns != nullptr && !turns->empty()) {
      if (!begins_with_question(*rejected) && (chosen == nullptr || !begins_with_question(*chosen)))
        return after_chat(rest, key, *turns, chosen, *rejected, where);
      // Beside whole conversations it is the better one, or the same as it.
      const json whole = chosen != nullptr ? *chosen : single_turns(*turns);
      return of_common_prompt(rest, whole, *rejected, where);
    }
  // An answer beside a rejected one is the better one.
  for (const char* key : kAnswerKeys)
    if (chosen == nullptr) chosen = field(object, key);
  if (chosen == nullptr)
    throw UserError("{}: \"rejected\" without \"chosen\", the better answer", where);
  check_answer(*chosen, "chosen", where);
  for (const char* key : kAnswerKeys) rest.erase(key);
  // Both have their question in front, whatever stands beside them.
  if (begins_with_question(*chosen) && begins_with_question(*rejected))
    return of_common_prompt(rest, *chosen, *rejected, where);
  for (const PromptNames& names : kPrompts)
    if (field(rest, names.question) != nullptr)
      return after_question(rest, names, *chosen, *rejected);
  return of_common_prompt(rest, *chosen, *rejected, where);
}

}  // namespace

std::vector<std::string> preference_columns() {
  std::vector<std::string> all;
  for (const auto& [chosen, rejected] : kNames) all.insert(all.end(), {chosen, rejected});
  return all;
}

bool is_preference_column(const std::string& name) {
  return std::ranges::any_of(
      kNames, [&](const Names& names) { return name == names.chosen || name == names.rejected; });
}

Row preference_from_json(const json& object, const Columns& columns, const std::string& where) {
  // Tables hold turns as their text.
  json parsed = object;
  for (auto& item : parsed.items())
    if (is_preference_column(item.key()) || item.key() == "prompt" || is_chat_column(item.key()))
      if (std::optional<json> turns = turns_in(item.value())) item.value() = *std::move(turns);
  const Sides sides = sides_of(parsed, where);
  Columns plain = columns;
  plain.preferences = false;
  plain.ratings = false;
  Row row = row_from_json(sides.chosen, plain, where);
  row.others.push_back(row_from_json(sides.rejected, plain, where));
  // What was answered before, in a "history", is no part of either answer.
  if (!sides.chosen.contains("completion"))
    for (Row* own : {&row, &row.others.front()})
      for (size_t i = 0; i + 1 < own->messages.size(); ++i)
        if (own->messages[i].role == "assistant") own->messages[i].in_prompt = true;
  return row;
}

Row answered_row(const json& object, const char* answer, const Columns& columns,
                 const std::string& where) {
  json both = object;
  both["chosen"] = both["rejected"] = object.at(answer);
  both.erase(answer);
  const bool has_prompt = std::ranges::any_of(
      kPrompts, [&](const PromptNames& names) { return field(object, names.question) != nullptr; });
  if (!has_prompt && !begins_with_question(both["chosen"]))
    throw UserError(
        "{}: \"{}\" without what it answers; give its question as \"prompt\", or let the turns "
        "begin with it",
        where, answer);
  return row_from_json(sides_of(both, where).chosen, columns, where);
}

}  // namespace snug::data
