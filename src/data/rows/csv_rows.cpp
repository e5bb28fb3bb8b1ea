// SPDX-License-Identifier: Apache-2.0
#include "data/rows/csv_rows.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "data/rows/csv.h"
#include "data/rows/row_from_json.h"

namespace snug::data {
namespace {

std::vector<std::string> column_names(std::string_view header, char separator,
                                      const std::string& where) {
  std::vector<std::string> names = csv_fields(header, separator);
  for (size_t i = 0; i < names.size(); ++i)
    if (!names[i].empty() &&
        std::find(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(i), names[i]) !=
            names.begin() + static_cast<std::ptrdiff_t>(i))
      throw UserError("{}: two columns are named \"{}\"", where, shortened(names[i], 60));
  return names;
}

nlohmann::json object_of(std::vector<std::string> fields, const std::vector<std::string>& names,
                         const std::string& where) {
  if (fields.size() != names.size())
    throw UserError(
        "{}: {} fields, but the first line names {} columns; put a text with separators or line "
        "breaks in double quotes",
        where, fields.size(), names.size());
  nlohmann::json object = nlohmann::json::object();
  for (size_t i = 0; i < fields.size(); ++i) object[names[i]] = std::move(fields[i]);
  return object;
}

}  // namespace

std::vector<Row> rows_from_csv(std::string_view text, char separator, const Columns& columns,
                               const std::string& name) {
  const std::vector<Record> records = records_of(text, separator, name);
  const auto field_text = [&](const Record& record) {
    return text.substr(record.begin, record.end - record.begin);
  };
  std::vector<Row> rows;
  std::vector<std::string> names;
  size_t line = 1, counted = 0;
  for (const Record& record : records) {
    line += static_cast<size_t>(std::count(text.begin() + static_cast<std::ptrdiff_t>(counted),
                                           text.begin() + static_cast<std::ptrdiff_t>(record.begin),
                                           '\n'));
    counted = record.begin;
    const std::string where = fmt::format("{}:{}", name, line);
    if (&record == records.data())
      names = column_names(field_text(record), separator, where);
    else
      rows.push_back(row_from_json(
          object_of(csv_fields(field_text(record), separator), names, where), columns, where));
  }
  return rows;
}

}  // namespace snug::data
