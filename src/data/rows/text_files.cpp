// SPDX-License-Identifier: Apache-2.0
#include "data/rows/text_files.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace snug::data {
namespace {

namespace fs = std::filesystem;

bool is_document(const fs::path& path) {
  const std::string ending = ending_of(path);
  return ending == ".txt" || ending == ".md";
}

bool is_readable(const fs::path& path) {
  constexpr std::array kEndings = {".json", ".jsonl", ".csv", ".tsv", ".parquet"};
  return is_document(path) || std::ranges::count(kEndings, ending_of(path)) > 0;
}

bool is_hidden(const fs::path& path) { return path.filename().string().starts_with("."); }

std::vector<fs::path> files_in(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code failure;
  auto at = fs::recursive_directory_iterator(folder, failure);
  for (; !failure && at != fs::end(at); at.increment(failure)) {
    if (at->is_directory() && is_hidden(at->path())) at.disable_recursion_pending();
    if (at->is_regular_file() && !is_hidden(at->path()) && is_readable(at->path()))
      files.push_back(at->path());
  }
  if (failure) throw UserError("cannot read the folder {}: {}", folder.string(), failure.message());
  std::ranges::sort(files);
  return files;
}

void append_rows(std::vector<Row>& rows, const fs::path& path, const Columns& columns) {
  if (is_document(path)) {
    Row row;
    row.kind = RowKind::Text;
    row.output = read_text(path);
    if (!trimmed(row.output).empty()) rows.push_back(std::move(row));
    return;
  }
  std::vector<Row> own = read_rows(path, columns);
  for (size_t i = 0; i < own.size(); ++i)
    if (own[i].kind != RowKind::Text)
      throw UserError(
          "{}: row {} is {}, and --data TextFiles reads the column \"text\" alone; give the file "
          "as "
          "--data {}",
          path.string(), i + 1, own[i].messages.empty() ? "a question and its answer" : "a chat",
          path.string());
  std::ranges::move(own, std::back_inserter(rows));
}

}  // namespace

std::vector<Row> read_text_files(const fs::path& path, const Columns& columns) {
  if (!fs::exists(path)) throw UserError("data.path: {} does not exist", path.string());
  const bool is_folder = fs::is_directory(path);
  if (!is_folder && !is_readable(path))
    throw UserError(
        "{}: --data TextFiles reads .txt, .md, .json, .jsonl, .csv, .tsv and .parquet files",
        path.string());
  std::vector<Row> rows;
  for (const fs::path& file : is_folder ? files_in(path) : std::vector<fs::path>{path})
    append_rows(rows, file, columns);
  if (rows.empty())
    throw UserError(
        "{}: no text in it; --data TextFiles reads .txt and .md files and rows with a "
        "column \"text\"",
        path.string());
  return rows;
}

}  // namespace snug::data
