// SPDX-License-Identifier: Apache-2.0
#include "data/rows/rows.h"

#include <algorithm>
#include <string_view>

#include "base/error.h"
#include "base/files.h"
#include "base/text.h"
#include "data/rows/csv.h"
#include "data/rows/csv_rows.h"
#include "data/rows/json_rows.h"
#include "data/rows/parquet.h"

namespace snug::data {
namespace {

std::string_view without_byte_order_mark(std::string_view text) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  return text;
}

void check_text(std::string_view text, const std::string& name) {
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos)
    throw UserError("{} is empty; it must hold at least one row", name);
  const size_t bad = find_invalid_utf8(text);
  if (bad == std::string_view::npos) return;
  throw UserError("{}:{}: byte {} (0x{:02x}) is not valid UTF-8; convert the file to UTF-8", name,
                  1 + std::count(text.begin(), text.begin() + bad, '\n'), bad,
                  static_cast<unsigned char>(text[bad]));
}

std::vector<Row> read_text_rows(const std::filesystem::path& path, const Columns& columns) {
  const std::string name = path.string();
  const MappedFile file(path);
  const std::string_view whole(reinterpret_cast<const char*>(file.bytes().data()),
                               file.bytes().size());
  check_text(without_byte_order_mark(whole), name);
  const std::string_view text = without_byte_order_mark(whole);
  const std::string ending = path.extension().string();
  if (ending == ".csv") return rows_from_csv(text, separator_of(text), columns, name);
  if (ending == ".tsv") return rows_from_csv(text, '\t', columns, name);
  return ending == ".json" ? rows_from_json(text, columns, name)
                           : rows_from_jsonl(text, columns, name);
}

}  // namespace

std::vector<Row> read_rows(const std::filesystem::path& path, const Columns& columns) {
  if (std::error_code ignored; std::filesystem::is_directory(path, ignored))
    throw UserError("{} is a folder; name a .json, .jsonl, .csv, .tsv or .parquet file in it",
                    path.string());
  const std::string ending = path.extension().string();
  std::vector<Row> rows;
  if (ending == ".json" || ending == ".jsonl" || ending == ".csv" || ending == ".tsv")
    rows = read_text_rows(path, columns);
  else if (ending == ".parquet")
    rows = read_parquet_rows(path, columns);
  else
    throw UserError("{}: the name must end in .json, .jsonl, .csv, .tsv or .parquet",
                    path.string());
  if (rows.empty()) throw UserError("{} holds no rows; at least one is needed", path.string());
  return rows;
}

std::vector<Row> split_conversations(const std::vector<Row>& rows) {
  std::vector<Row> pairs;
  for (const Row& row : rows) {
    if (row.messages.empty()) pairs.push_back(row);
    const Message* question = nullptr;
    for (const Message& turn : row.messages) {
      if (turn.role == "assistant" && question)
        pairs.push_back({.instruction = question->content,
                         .input = "",
                         .output = turn.content,
                         .messages = {},
                         .number = row.number});
      question = turn.role == "user" ? &turn : nullptr;
    }
  }
  return pairs;
}

}  // namespace snug::data
