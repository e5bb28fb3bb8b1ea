// Where the records of a CSV lie in its text, and their fields (RFC 4180): texts of many lines and
// separators stand in double quotes. Lines of JSON are split here too: they are records without
// quotes.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace snug::data {

// From `begin` up to `end` of the text, without the line's end.
struct Record {
  size_t begin = 0, end = 0;
};

// Spreadsheets separate by semicolons where numbers have decimal commas: what the header has.
char separator_of(std::string_view csv);

// All but blank ones. `separator` is 0 for lines of JSON. Throws UserError, naming `name` and the
// line, where quotes swallow the rows behind them.
std::vector<Record> records_of(std::string_view text, char separator, const std::string& name);

// Of one record.
std::vector<std::string> csv_fields(std::string_view record, char separator);

}  // namespace snug::data
