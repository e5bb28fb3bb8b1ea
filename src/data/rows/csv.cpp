// SPDX-License-Identifier: Apache-2.0
#include "data/rows/csv.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "data/rows/row_from_json.h"

namespace snug::data {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

[[noreturn]] void refuse_open_quotes(std::string_view text, size_t opened,
                                     const std::string& name) {
  const std::string_view before = text.substr(0, opened);
  throw UserError(
      "{}: line {}: the double quotes that open here are not closed before the next rows; close "
      "them, and double any quotes within a text (\"\")",
      name, 1 + std::count(before.begin(), before.end(), '\n'));
}

// Whether a field may end before this character of a CSV.
bool ends_field(std::string_view text, size_t at, char separator) {
  return at >= text.size() || text[at] == separator || text[at] == '\n' || text[at] == '\r';
}

// A CSV record ends at a line break outside quotes. Quotes open only at the beginning of a field:
// elsewhere they are ordinary characters, such as inches. `separator` is 0 for lines of JSON.
// Throws UserError if quotes swallow the next rows: never closed, or closed only by the quotes that
// open a later field.
size_t end_of_record(std::string_view text, size_t at, char separator, const std::string& name) {
  bool quoted = false;
  size_t opened = 0;
  for (const size_t begin = at; at < text.size(); ++at) {
    const bool opens = at == begin || text[at - 1] == separator;
    if (separator != 0 && text[at] == '"') {
      if (quoted && text.substr(at + 1).starts_with('"')) {
        ++at;  // doubled quotes are one character
      } else if (quoted) {
        quoted = false;
        if (!ends_field(text, at + 1, separator) &&
            text.substr(opened, at - opened).find('\n') != std::string_view::npos)
          refuse_open_quotes(text, opened, name);
      } else if (opens) {
        quoted = true;
        opened = at;
      }
    }
    if (text[at] == '\n' && !quoted) break;
  }
  if (quoted) refuse_open_quotes(text, opened, name);
  return at;
}

}  // namespace

std::vector<Record> records_of(std::string_view text, char separator, const std::string& name) {
  std::vector<Record> records;
  size_t at = text.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0;
  while (at < text.size()) {
    const size_t end = end_of_record(text, at, separator, name);
    if (text.substr(at, end - at).find_first_not_of(" \t\r") != std::string_view::npos)
      records.push_back({at, end});
    at = end + 1;
  }
  return records;
}

char separator_of(std::string_view csv) {
  const std::string_view header = csv.substr(0, csv.find('\n'));
  for (const char separator : {',', ';', '\t'})
    if (header.find(separator) != std::string_view::npos) return separator;
  return ',';
}

std::vector<std::string> csv_fields(std::string_view record, char separator) {
  if (record.ends_with('\r')) record.remove_suffix(1);
  std::vector<std::string> fields(1);
  bool quoted = false;
  for (size_t i = 0; i < record.size(); ++i) {
    const char c = record[i];
    const bool opens = i == 0 || record[i - 1] == separator;
    if (quoted && c == '"' && i + 1 < record.size() && record[i + 1] == '"')
      fields.back() += record[++i];
    else if (c == '"' && (quoted || opens))
      quoted = !quoted;
    else if (c == separator && !quoted)
      fields.emplace_back();
    else
      fields.back() += c;
  }
  return fields;
}

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

nlohmann::ordered_json object_of(std::vector<std::string> fields,
                                 const std::vector<std::string>& names, const std::string& where) {
  if (fields.size() != names.size())
    throw UserError(
        "{}: {} fields, but the first line names {} columns; put a text with separators or line "
        "breaks in double quotes",
        where, fields.size(), names.size());
  nlohmann::ordered_json object = nlohmann::ordered_json::object();
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
