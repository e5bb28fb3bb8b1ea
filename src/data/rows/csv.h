// Reads CSV and TSV. Splits the text into records and fields (RFC 4180); text with line breaks or
// separators is in double quotes. Also splits lines of JSON, as records without quotes.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "data/rows/rows.h"

namespace snug::data {

// The text [begin, end) of a record, without the line break.
struct Record {
  size_t begin = 0, end = 0;
};

// The separator in the header: spreadsheets write semicolons in locales with decimal commas.
char separator_of(std::string_view csv);

// All records except blank ones. `separator` is 0 for lines of JSON. Throws UserError with `name`
// and line for quotes that are not closed and swallow the next rows.
std::vector<Record> records_of(std::string_view text, char separator, const std::string& name);

// The fields of one record.
std::vector<std::string> csv_fields(std::string_view record, char separator);

// The rows of a CSV or TSV, whose first line names the columns. `name`: the file's name in errors.
std::vector<Row> rows_from_csv(std::string_view text, char separator, const Columns& columns,
                               const std::string& name);

}  // namespace snug::data
