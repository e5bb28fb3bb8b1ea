// The pictures of a row that is a JSON object: named in parts of its turns, beside a turn, or
// beside all of them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "data/rows/rows.h"

namespace snug::data {

// The value at a key; null if it is missing, JSON's null, or the key is empty.
const nlohmann::ordered_json* field(const nlohmann::ordered_json& object, const std::string& key);

// A text. `where` names file and row in errors. Throws UserError if it is none.
std::string text_of(const nlohmann::ordered_json& value, std::string_view column,
                    const std::string& where);

// A text, or what stands in parts: [{"type": "text", "text": …}, {"type": "image", "image": …}, …].
// Pictures of parts are added to the row's, empty where a part names no file, and marked in the
// text.
std::string content_of(const nlohmann::ordered_json& value, std::string_view column, Row& row,
                       const std::string& where);

// The same of a turn, with the pictures that stand beside its text in front of it where it has no
// places for them. `place` names the turn.
std::string turn_text(const nlohmann::ordered_json& turn, const nlohmann::ordered_json& content,
                      Row& row, const Columns& columns, const std::string& place);

// Pictures that stand beside turns, or beside a turn's text. For a model that looks at none, only
// what is a file or a list of them: anything else is a column like any other that is not read.
std::vector<std::string> pictures_beside(const nlohmann::ordered_json& object,
                                         const Columns& columns, const std::string& where);

// Each picture belongs to a mark in the turns; without marks all stand before the first question.
void place_pictures(const nlohmann::ordered_json& object, Row& row, const Columns& columns,
                    const std::string& where);

// Turns that no answer follows are never read, nor are their pictures.
void drop_unanswered(Row& row);

// The columns in which a model that looks at pictures finds them.
std::vector<std::string> picture_columns();

}  // namespace snug::data
