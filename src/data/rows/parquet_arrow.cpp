// Parquet through Arrow's C++ libraries. Each row becomes the JSON object it would be in a .jsonl
// file and goes the same way from there.
// SPDX-License-Identifier: Apache-2.0
#include <arrow/io/file.h>
#include <fmt/ranges.h>
#include <parquet/arrow/reader.h>
#include <parquet/arrow/schema.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "data/rows/arrow_values.h"
#include "data/rows/parquet.h"
#include "data/rows/row_from_json.h"

namespace snug::data {
namespace {

using nlohmann::json;

// What a row may use; other columns are not even decoded.
std::vector<int> wanted_columns(const arrow::Schema& schema, const Columns& columns) {
  const std::vector<std::string> names = {columns.instruction, columns.input,   columns.output,
                                          "messages",          "conversations", "conversation"};
  std::vector<int> wanted;
  for (int i = 0; i < schema.num_fields(); ++i)
    if (std::find(names.begin(), names.end(), schema.field(i)->name()) != names.end())
      wanted.push_back(i);
  return wanted;
}

// Column numbers count leaves in Parquet: a list of structs is one field and several columns.
std::vector<int> leaves_of(const parquet::arrow::SchemaManifest& manifest,
                           const std::vector<int>& fields) {
  std::vector<int> leaves;
  std::vector<const parquet::arrow::SchemaField*> open;
  for (const int field : fields)
    open.push_back(&manifest.schema_fields[static_cast<size_t>(field)]);
  while (!open.empty()) {
    const parquet::arrow::SchemaField* field = open.back();
    open.pop_back();
    if (field->is_leaf()) leaves.push_back(field->column_index);
    for (const auto& child : field->children) open.push_back(&child);
  }
  std::sort(leaves.begin(), leaves.end());
  return leaves;
}

void append_rows(const arrow::RecordBatch& batch, const Columns& columns, const std::string& name,
                 std::vector<Row>& rows) {
  for (int64_t i = 0; i < batch.num_rows(); ++i) {
    const std::string where = fmt::format("{}: row {}", name, rows.size() + 1);
    json object = json::object();
    for (int k = 0; k < batch.num_columns(); ++k)
      object[batch.column_name(k)] = json_at(*batch.column(k), i);
    rows.push_back(row_from_json(object, columns, where));
  }
}

std::vector<Row> read_rows_of(const std::string& name, const Columns& columns) {
  const auto file = value_or_throw(arrow::io::ReadableFile::Open(name), name, "Parquet");
  const auto reader =
      value_or_throw(parquet::arrow::OpenFile(file, arrow::default_memory_pool()), name, "Parquet");
  std::shared_ptr<arrow::Schema> schema;
  if (const arrow::Status status = reader->GetSchema(&schema); !status.ok())
    throw UserError("{}: not a readable Parquet file: {}", name, status.message());
  const std::vector<int> wanted = wanted_columns(*schema, columns);
  if (wanted.empty())
    throw UserError("{}: a row needs \"{}\" and \"{}\", or \"messages\"; columns found: {}", name,
                    columns.instruction, columns.output, fmt::join(schema->field_names(), ", "));
  std::vector<int> row_groups(static_cast<size_t>(std::max(reader->num_row_groups(), 0)));
  for (size_t i = 0; i < row_groups.size(); ++i) row_groups[i] = static_cast<int>(i);
  const auto batches = value_or_throw(
      reader->GetRecordBatchReader(row_groups, leaves_of(reader->manifest(), wanted)), name,
      "Parquet");
  std::vector<Row> rows;
  while (const auto batch = value_or_throw(batches->Next(), name, "Parquet")) {
    // Offsets and lengths in a damaged file may point anywhere; this also refuses text that is not
    // UTF-8.
    if (const arrow::Status status = batch->ValidateFull(); !status.ok())
      throw UserError("{}: not a readable Parquet file: {}", name, status.message());
    append_rows(*batch, columns, name, rows);
  }
  return rows;
}

}  // namespace

bool parquet_available() { return true; }

std::vector<Row> read_parquet_rows(const std::filesystem::path& path, const Columns& columns) {
  try {
    return read_rows_of(path.string(), columns);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw UserError("{}: not a readable Parquet file: {}", path.string(), error.what());
  }
}

}  // namespace snug::data
