// Turns a JSON object into a row. JSON and Parquet both use it, so both accept and refuse the same
// rows.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "data/rows/rows.h"

namespace snug::data {

// No data set nests deeper; a bound keeps hostile files from growing the parser's stacks.
inline constexpr int kMaxDepth = 64;

// Columns that hold a chat, and those that hold an answer beside its question.
inline constexpr const char* kChatKeys[] = {"messages", "conversations", "conversation"};
inline constexpr const char* kAnswerKeys[] = {"response", "completion", "output", "answer",
                                              "solution"};

// Keys in their order, in which templates write what they take as JSON. `where` names file and row
// in errors: "train.jsonl:17", "train.json: row 3".
Row row_from_json(const nlohmann::ordered_json& object, const Columns& columns,
                  const std::string& where);

// A chat as an array, or as the text of one, as tables hold it.
std::optional<nlohmann::ordered_json> turns_in(const nlohmann::ordered_json& value);

// Whether it has a question and its answer, or turns.
bool is_answered(const nlohmann::ordered_json& object, const Columns& columns);
// The turns of an object that has any, whoever speaks last.
std::optional<Row> chat_to_sort(const nlohmann::ordered_json& object, const Columns& columns,
                                const std::string& where);

// The columns that it may look at.
std::vector<std::string> row_columns(const Columns& columns);
// Whether a row with this column was made for another objective; a UserError where it has a value.
bool is_foreign_column(const std::string& name);

// User data for a message: at most `max_bytes`, cut between characters, on one line.
std::string shortened(std::string text, size_t max_bytes);

}  // namespace snug::data
