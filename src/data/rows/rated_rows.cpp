// SPDX-License-Identifier: Apache-2.0
#include "data/rows/rated_rows.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "data/rows/preference_rows.h"
#include "data/rows/row_from_json.h"
#include "data/rows/row_pictures.h"

namespace snug::data {
namespace {

using json = nlohmann::ordered_json;

constexpr const char* kVerdicts[] = {"label", "kto_tag"};

// Nothing where the value is no verdict.
std::optional<bool> verdict_of(const json& value) {
  if (value.is_boolean()) return value.get<bool>();
  if (value == 0 || value == 1) return value == 1;
  if (!value.is_string()) return std::nullopt;
  const auto& text = value.get_ref<const std::string&>();
  for (const char* word : {"true", "True", "TRUE", "1"})
    if (text == word) return true;
  for (const char* word : {"false", "False", "FALSE", "0"})
    if (text == word) return false;
  return std::nullopt;
}

bool has_words(const json* value) {
  return value != nullptr && (value->is_structured() ? !value->empty()
                                                     : value->is_string() && !value->empty() &&
                                                           !value->get<std::string>().empty());
}

bool is_pair(const json& object) {
  const std::vector<std::string> names = preference_columns();
  return std::ranges::any_of(names, [&](const std::string& name) {
    return name.starts_with("rejected") && has_words(field(object, name));
  });
}

bool verdict_in(const json& object, const std::string& where) {
  for (const char* key : kVerdicts)
    if (const json* value = field(object, key)) {
      if (const std::optional<bool> verdict = verdict_of(*value)) return *verdict;
      throw UserError(
          "{}: \"{}\" is {}; it says of an answer whether it is good, with true or false", where,
          key, shortened(value->dump(-1, ' ', false, json::error_handler_t::replace), 40));
    }
  throw UserError(
      "{}: no \"label\"; a row of --objective kto has an answer and \"label\" (or \"kto_tag\"), "
      "true of a good one and false of a bad one, or \"chosen\" and \"rejected\"; rows with one "
      "answer that is to be learnt are for --objective sft",
      where);
}

// "completion" as turns, or behind a prompt of turns.
bool has_turns(const json& object) {
  const json *prompt = field(object, "prompt"), *completion = field(object, "completion");
  return completion != nullptr &&
         (completion->is_structured() || (prompt != nullptr && prompt->is_array()));
}

}  // namespace

std::vector<std::string> rating_columns() { return {std::begin(kVerdicts), std::end(kVerdicts)}; }

bool is_rating_column(const std::string& name) {
  return std::ranges::any_of(kVerdicts, [&](const char* verdict) { return name == verdict; });
}

bool is_verdict(const json& value) { return verdict_of(value).has_value(); }

Row rated_from_json(const json& object, const Columns& columns, const std::string& where) {
  if (is_pair(object)) return preference_from_json(object, columns, where);
  const bool verdict = verdict_in(object, where);
  json rest = json::object();
  for (const auto& item : object.items())
    if (!is_rating_column(item.key()) && !is_preference_column(item.key()))
      rest[item.key()] = item.value();
  // Tables hold turns as their text.
  for (const char* key : {"prompt", "completion"})
    if (const json* value = field(rest, key))
      if (std::optional<json> turns = turns_in(*value)) rest[key] = *std::move(turns);
  Columns plain = columns;
  plain.ratings = false;
  plain.unread = nullptr;
  Row row = has_turns(rest) ? answered_row(rest, "completion", plain, where)
                            : row_from_json(rest, plain, where);
  if (row.kind == RowKind::Text)
    throw UserError(
        "{}: \"text\" and no prompt; --objective kto learns from answers to a prompt: write them "
        "as \"prompt\" and \"completion\"",
        where);
  // Answers before the last are part of its prompt.
  const auto is_answer = [](const Message& turn) { return turn.role == "assistant"; };
  const bool has_completion = field(rest, "completion") != nullptr;
  const auto last = std::ranges::find_if(row.messages.rbegin(), row.messages.rend(), is_answer);
  for (auto turn = last; !has_completion && turn != row.messages.rend(); ++turn)
    if (turn != last && is_answer(*turn)) turn->in_prompt = true;
  row.desirable = verdict;
  return row;
}

}  // namespace snug::data
