// SPDX-License-Identifier: Apache-2.0
#include "data/rows/row_from_json.h"

#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace snug::data {
namespace {

using nlohmann::json;

constexpr const char* kSystemKeys[] = {"system", "system_prompt"};
constexpr const char* kCallKeys[] = {"tool_calls", "function_call"};
constexpr const char* kChatKeys[] = {"messages", "conversations", "conversation"};

const json* find(const json& object, const std::string& key) {
  const auto at = object.find(key);
  return key.empty() || at == object.end() || at->is_null() ? nullptr : &*at;
}

std::string text_of(const json& value, std::string_view column, const std::string& where) {
  if (!value.is_string())
    throw UserError("{}: \"{}\" is {} {}, but must be text; write it in quotes", where, column,
                    value.is_object() || value.is_array() ? "an" : "a", value.type_name());
  return value.get<std::string>();
}

// What there is, and which of it is null and so as good as missing.
std::string columns_of(const json& object) {
  std::vector<std::string> names;
  for (const auto& item : object.items()) {
    if (names.size() == 20) return fmt::format("{}, …", fmt::join(names, ", "));
    names.push_back(shortened(item.key(), 60) + (item.value().is_null() ? " (null)" : ""));
  }
  return names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "));
}

// ShareGPT's names for the parties of a chat.
std::string role_of(std::string name) {
  if (name == "human") return "user";
  if (name == "gpt" || name == "bot" || name == "model") return "assistant";
  return name;
}

// A text, or the texts that stand in parts: [{"type": "text", "text": …}, …].
std::string content_of(const json& value, std::string_view column, const std::string& where) {
  if (!value.is_array()) return text_of(value, column, where);
  std::string text;
  for (const json& part : value) {
    const json* content = part.is_object() ? find(part, "text") : &part;
    if (content == nullptr || !content->is_string())
      throw UserError(
          "{}: \"{}\" has a part of type {}; only text is supported: "
          "{{\"type\": \"text\", \"text\": …}}",
          where, column,
          part.is_object() ? shortened(part.value("type", json("?")).dump(), 40)
                           : part.type_name());
    text += content->get<std::string>();
  }
  return text;
}

constexpr const char* kUserKeys[] = {"user", "human", "question", "prompt", "instruction"};
constexpr const char* kAssistantKeys[] = {"assistant", "gpt",      "bot",
                                          "answer",    "response", "output"};

// A question and its answer as one turn: [question, answer] or {"user": …, "assistant": …}.
bool add_pair(const json& turn, std::vector<Message>& turns, const std::string& place) {
  const json *question = nullptr, *answer = nullptr;
  if (turn.is_array() && turn.size() == 2) {
    question = &turn[0];
    answer = &turn[1];
  } else if (turn.is_object()) {
    for (const char* key : kUserKeys)
      if (question == nullptr) question = find(turn, key);
    for (const char* key : kAssistantKeys)
      if (answer == nullptr) answer = find(turn, key);
  }
  if (question == nullptr || answer == nullptr) return false;
  turns.push_back({"user", content_of(*question, "question", place)});
  turns.push_back({"assistant", content_of(*answer, "answer", place)});
  return true;
}

void add_turn(const json& turn, size_t number, std::vector<Message>& turns,
              const std::string& where) {
  if (turn.is_string()) {
    turns.push_back({turns.size() % 2 == 0 ? "user" : "assistant", turn.get<std::string>()});
    return;
  }
  const std::string place = fmt::format("{}, turn {}", where, number + 1);
  const json *role = nullptr, *content = nullptr;
  if (turn.is_object()) {
    role = find(turn, "role");
    content = find(turn, "content");
    if (!role) role = find(turn, "from");
    if (!content) content = find(turn, "value");
  }
  for (const char* key : kCallKeys)
    if (const json* calls = turn.is_object() ? find(turn, key) : nullptr; calls && !calls->empty())
      throw UserError(
          "{}: \"{}\" is not supported, and without it the model would learn an empty answer; "
          "write the "
          "call into \"content\", or leave the row out",
          place, key);
  if (role != nullptr && content != nullptr) {
    turns.push_back(
        {role_of(text_of(*role, "role", place)), content_of(*content, "content", place)});
    return;
  }
  if (add_pair(turn, turns, place)) return;
  if (!turn.is_object())
    throw UserError("{}: a turn is {{\"role\": …, \"content\": …}}, but this is {} {}", place,
                    turn.is_array() ? "an" : "a", turn.type_name());
  throw UserError("{}: a turn needs \"role\" and \"content\"; found: {}", place, columns_of(turn));
}

// The first question and its answer, for styles that know no turns; a system text goes in front.
void fill_first_exchange(Row& row, const std::string& where) {
  std::string system;
  const Message* question = nullptr;
  for (const Message& turn : row.messages) {
    if (turn.role == "system") system += turn.content + "\n\n";
    if (turn.role == "user") question = &turn;
    if (turn.role != "assistant" || !question) continue;
    row.instruction = system + question->content;
    row.output = turn.content;
    return;
  }
  throw UserError("{}: the chat has no \"user\" turn answered by an \"assistant\" turn", where);
}

void add_turns(const json& turns, std::string_view column, Row& row, const std::string& where) {
  if (!turns.is_array())
    throw UserError("{}: \"{}\" must be an array of turns, but is {} {}", where, column,
                    turns.is_object() ? "an" : "a", turns.type_name());
  for (size_t i = 0; i < turns.size(); ++i) add_turn(turns[i], i, row.messages, where);
}

// What stands beside the turns for the model to know.
std::string system_of(const json& object, const std::string& where) {
  for (const char* key : kSystemKeys)
    if (const json* system = find(object, key); system != nullptr && system->is_string())
      return text_of(*system, key, where);
  return "";
}

void put_system_first(const std::string& system, Row& row) {
  if (system.empty()) return;
  if (!row.messages.empty() && row.messages.front().role == "system") return;
  row.messages.insert(row.messages.begin(), {"system", system});
}

Row chat_row(const json& object, const json& turns, std::string_view column,
             const std::string& where) {
  Row row;
  add_turns(turns, column, row, where);
  put_system_first(system_of(object, where), row);
  fill_first_exchange(row, where);
  return row;
}

// A question with a system text, or with what was said before it ("history": pairs), is a chat.
Row with_what_comes_before(Row row, const json& object, const std::string& where) {
  const std::string system = system_of(object, where);
  const json* history = find(object, "history");
  const bool has_history = history != nullptr && history->is_array() && !history->empty();
  if (row.kind != RowKind::Question || (system.empty() && !has_history)) return row;
  if (has_history) add_turns(*history, "history", row, where);
  row.messages.push_back(
      {"user", row.input.empty() ? row.instruction : row.instruction + "\n\n" + row.input});
  row.messages.push_back({"assistant", row.output});
  put_system_first(system, row);
  row.input.clear();
  fill_first_exchange(row, where);
  return row;
}

// Columns in which people keep a question and its answer.
struct PairColumns {
  const char *question, *answer;
  RowKind kind = RowKind::Question;
};
constexpr PairColumns kPairs[] = {
    {"prompt", "completion", RowKind::Completion},
    {"prompt", "response"},
    {"instruction", "response"},
    {"instruction", "completion"},
    {"instruction", "answer"},
    {"question", "answer"},
    {"question", "response"},
    {"query", "response"},
    {"query", "answer"},
    {"problem", "solution"},
    {"input", "output"},
    {"input", "response"},
};
constexpr const char* kInputKeys[] = {"input", "context"};

// A question and its answer, or turns that end in an answer and its turns.
Row pair_row(const json& object, const PairColumns& pair, const std::string& where) {
  const json &question = *find(object, pair.question), &answer = *find(object, pair.answer);
  Row row;
  if (question.is_array() && answer.is_array()) {
    add_turns(question, pair.question, row, where);
    add_turns(answer, pair.answer, row, where);
    fill_first_exchange(row, where);
    return row;
  }
  row.kind = pair.kind;
  row.instruction = text_of(question, pair.question, where);
  row.output = text_of(answer, pair.answer, where);
  for (const char* key : kInputKeys)
    if (const json* input = find(object, key); input != nullptr && input != &question)
      row.input = text_of(*input, key, where);
  return with_what_comes_before(std::move(row), object, where);
}

}  // namespace

Row row_from_json(const json& object, const Columns& columns, const std::string& where) {
  const json* output = find(object, columns.output);
  const json* instruction = find(object, columns.instruction);
  if (output && instruction) {
    Row row;
    row.instruction = text_of(*instruction, columns.instruction, where);
    row.output = text_of(*output, columns.output, where);
    if (const json* input = find(object, columns.input))
      row.input = text_of(*input, columns.input, where);
    return with_what_comes_before(std::move(row), object, where);
  }
  if (!output)
    for (const char* key : kChatKeys)
      if (const json* turns = find(object, key)) return chat_row(object, *turns, key, where);
  for (const PairColumns& pair : kPairs)
    if (find(object, pair.question) && find(object, pair.answer))
      return pair_row(object, pair, where);
  if (const json* text = find(object, "text"); text && !instruction && !output) {
    Row row;
    row.kind = RowKind::Text;
    row.output = text_of(*text, "text", where);
    return row;
  }
  throw UserError(
      "{}: no \"{}\"; a row needs \"{}\" and \"{}\" (\"input\" is optional), or \"messages\", "
      "\"question\" and \"answer\", \"prompt\" and \"completion\", or \"text\"; columns found: {}",
      where, output ? columns.instruction : columns.output, columns.instruction, columns.output,
      columns_of(object));
}

std::string shortened(std::string text, size_t max_bytes) {
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20) c = ' ';
  if (text.size() <= max_bytes) return text;
  while (max_bytes > 0 && (static_cast<unsigned char>(text[max_bytes]) & 0xC0) == 0x80) --max_bytes;
  return text.substr(0, max_bytes) + "…";
}

}  // namespace snug::data
