// SPDX-License-Identifier: Apache-2.0
#include "data/row_from_json.h"

#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace snug::data {
namespace {

using nlohmann::json;

constexpr const char* kChatKeys[] = {"messages", "conversations", "conversation"};

const json* find(const json& object, const std::string& key) {
  const auto at = object.find(key);
  return key.empty() || at == object.end() || at->is_null() ? nullptr : &*at;
}

std::string text_of(const json& value, std::string_view column, const std::string& where) {
  if (!value.is_string())
    throw UserError("{}: \"{}\" is {} {}, but text is wanted; write it in quotes", where, column,
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

Message turn_from_json(const json& turn, size_t number, const std::string& where) {
  if (turn.is_string()) return {number % 2 == 0 ? "user" : "assistant", turn.get<std::string>()};
  const std::string place = fmt::format("{}, turn {}", where, number + 1);
  if (!turn.is_object())
    throw UserError("{}: a turn is {{\"role\": …, \"content\": …}}, but this is {} {}", place,
                    turn.is_array() ? "an" : "a", turn.type_name());
  const json* role = find(turn, "role");
  const json* content = find(turn, "content");
  if (!role) role = find(turn, "from");
  if (!content) content = find(turn, "value");
  if (!role || !content)
    throw UserError("{}: a turn needs \"role\" and \"content\"; found: {}", place,
                    columns_of(turn));
  return {role_of(text_of(*role, "role", place)), text_of(*content, "content", place)};
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

Row chat_row(const json& turns, std::string_view column, const std::string& where) {
  if (!turns.is_array())
    throw UserError("{}: \"{}\" must be an array of turns, but is {} {}", where, column,
                    turns.is_object() ? "an" : "a", turns.type_name());
  Row row;
  for (const json& turn : turns)
    row.messages.push_back(turn_from_json(turn, row.messages.size(), where));
  fill_first_exchange(row, where);
  return row;
}

}  // namespace

Row row_from_json(const json& object, const Columns& columns, const std::string& where) {
  const json* output = find(object, columns.output);
  if (!output)
    for (const char* key : kChatKeys)
      if (const json* turns = find(object, key)) return chat_row(*turns, key, where);
  const json* instruction = find(object, columns.instruction);
  if (!output || !instruction)
    throw UserError(
        "{}: no \"{}\"; a row needs \"{}\" and \"{}\" (\"input\" may be there), or \"messages\"; "
        "columns found: {}",
        where, output ? columns.instruction : columns.output, columns.instruction, columns.output,
        columns_of(object));
  Row row;
  row.instruction = text_of(*instruction, columns.instruction, where);
  row.output = text_of(*output, columns.output, where);
  if (const json* input = find(object, columns.input))
    row.input = text_of(*input, columns.input, where);
  return row;
}

std::string shortened(std::string text, size_t max_bytes) {
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20) c = ' ';
  if (text.size() <= max_bytes) return text;
  while (max_bytes > 0 && (static_cast<unsigned char>(text[max_bytes]) & 0xC0) == 0x80) --max_bytes;
  return text.substr(0, max_bytes) + "…";
}

}  // namespace snug::data
