// Rows to be sorted: a text, a chat or a question with its answer, each with a label.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/rows/rows.h"

namespace snug::data {

// Its text is in a chat's columns, in those of a question and its answer, or in one of
// text_columns(). Throws UserError.
Row labelled_from_json(const nlohmann::ordered_json& object, const Columns& columns,
                       const std::string& where);

// Columns that hold a text by itself.
std::vector<std::string> text_columns();

// The names of all labels, by number. Whole numbers from 0 on are the numbers themselves, with
// those between them that no row has; other whole numbers are names in their order, texts in
// theirs. Throws UserError, beginning with `where`, for fewer than two.
std::vector<std::string> label_names(std::span<const Row> rows, const std::string& where);

// The number of the label that a row calls so: one of the names, or a number of them where none is
// one.
std::optional<int64_t> label_number(const std::vector<std::string>& names,
                                    const std::string& label);

// "neg, pos, … (12)"
std::string listed_labels(const std::vector<std::string>& names);

// A pair's "margin"; 0 without one. Throws UserError.
double margin_of(const nlohmann::ordered_json& object, const std::string& where);

}  // namespace snug::data
