// Hugging Face data sets and Parquet files through Arrow's C++ libraries. A row of text becomes the
// JSON object that it would be in a .jsonl file.
// SPDX-License-Identifier: Apache-2.0

#include <arrow/io/compressed.h>
#include <arrow/io/file.h>
#include <arrow/util/compression.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "base/bytes.h"
#include "base/error.h"
#include "base/log.h"
#include "data/pictures/picture_folder.h"
#include "data/rows/arrow_rows.h"
#include "data/rows/hugging_face.h"
#include "data/rows/row_from_json.h"

namespace snug::data {
namespace {

namespace fs = std::filesystem;

// The files of a split one after another.
class Table {
 public:
  explicit Table(const std::vector<fs::path>& paths) : paths_(paths) {
    const auto cache = std::make_shared<GroupCache>();
    for (const fs::path& path : paths) {
      files_.push_back(open_arrow_rows(path, cache));
      begins_.push_back(count_);
      count_ += files_.back()->count();
      if (files_.back()->schema()->field_names() != schema()->field_names())
        throw UserError("{} and {} have different columns", paths.front().string(), path.string());
    }
    if (count_ == 0) throw UserError("{} holds no rows", paths.front().string());
  }
  int64_t count() const { return count_; }
  std::shared_ptr<arrow::Schema> schema() const { return files_.front()->schema(); }
  std::string name() const { return paths_.front().string(); }

  struct Place {
    size_t file = 0;
    int64_t row = 0;
  };
  // Where a row lies.
  Place place(int64_t row) const {
    const auto next = std::upper_bound(begins_.begin(), begins_.end(), row);
    const auto file = static_cast<size_t>(next - begins_.begin() - 1);
    return {file, row - begins_[file]};
  }
  ArrowRows::Chunk at(int field, int64_t row) const {
    const Place found = place(row);
    return files_[found.file]->at(field, found.row);
  }
  const fs::path& path(int64_t row) const { return paths_[place(row).file]; }
  std::string where(int64_t row) const {
    return fmt::format("{}: row {}", path(row).string(), place(row).row + 1);
  }

 private:
  std::vector<fs::path> paths_;
  std::vector<std::unique_ptr<ArrowRows>> files_;
  std::vector<int64_t> begins_;
  int64_t count_ = 0;
};

class HuggingFacePictures : public PictureRows {
 public:
  HuggingFacePictures(Table table, int image_field, int text_field)
      : table_(std::move(table)), image_field_(image_field), text_field_(text_field) {}

  int64_t count() const override { return table_.count(); }
  std::vector<std::optional<std::string>> captions(std::span<const int64_t> rows) const override {
    if (!has_captions()) return std::vector<std::optional<std::string>>(rows.size());
    std::vector<std::optional<std::string>> captions;
    for (const int64_t row : rows) {
      const std::vector<std::string> all = references(row);
      captions.push_back(all.empty() ? std::nullopt : std::optional(all.front()));
    }
    return captions;
  }
  std::vector<std::string> references(int64_t row) const override {
    if (!has_captions()) return {};
    const ArrowRows::Chunk chunk = table_.at(text_field_, row);
    std::vector<std::string> all = captions_at(*chunk.column, chunk.row);
    std::erase_if(all, is_blank);
    return all;
  }
  bool has_captions() const override { return text_field_ >= 0; }
  PictureBytes picture(int64_t row) const override {
    const ArrowRows::Chunk chunk = table_.at(image_field_, row);
    try {
      return picture_at(chunk.column, chunk.row, table_.path(row).parent_path());
    } catch (const UserError& error) {
      throw UserError("{}: {}", where(row), error.what());
    }
  }
  std::string file(int64_t row) const override {
    const ArrowRows::Chunk chunk = table_.at(image_field_, row);
    const std::string path = picture_path_at(*chunk.column, chunk.row);
    return path.empty() ? where(row) : path;
  }
  std::string where(int64_t row) const override { return table_.where(row); }

 private:
  Table table_;
  int image_field_, text_field_;  // the latter -1: no captions
};

// The first column of pictures; -1: none. A column that is named may also hold paths of files.
int find_images(const arrow::Schema& schema, const std::string& wanted, const std::string& where) {
  if (wanted == "auto") {
    for (int i = 0; i < schema.num_fields(); ++i)
      if (is_picture_type(*schema.field(i)->type())) return i;
    for (const std::string_view name : kPathColumns)
      if (const int i = schema.GetFieldIndex(std::string(name));
          i >= 0 && schema.field(i)->type()->id() == arrow::Type::STRING)
        return i;
    return -1;
  }
  choose_column(wanted, schema.field_names(), {}, "data.image_column", where);
  const int field = schema.GetFieldIndex(wanted);
  const arrow::DataType& type = *schema.field(field)->type();
  if (is_picture_type(type) || type.id() == arrow::Type::STRING) return field;
  throw UserError(
      "{}: the column {} (data.image_column) holds {}, but pictures are bytes, paths or Hugging "
      "Face's Image; columns found: {}",
      where, wanted, type.ToString(), fmt::join(schema.field_names(), ", "));
}

// -1: none, where none are needed.
int find_captions(const arrow::Schema& schema, const std::string& wanted, bool needed,
                  const std::string& where) {
  const std::string name =
      choose_column(wanted, schema.field_names(), kTextColumns, "data.text_column", where);
  if (name.empty() && !needed) return -1;
  if (name.empty())
    throw UserError(
        "{}: which column holds the captions? Name it with --data.text_column; columns found: {}",
        where, fmt::join(schema.field_names(), ", "));
  const int field = schema.GetFieldIndex(name);
  const arrow::DataType& type = *schema.field(field)->type();
  if (!is_caption_type(type) && !needed && wanted == "auto") return -1;
  if (!is_caption_type(type))
    throw UserError("{}: the column {} (data.text_column) holds {}, but captions are text", where,
                    name, type.ToString());
  if (needed && (type.id() == arrow::Type::LIST || type.id() == arrow::Type::LARGE_LIST))
    warn("{}: {} holds several captions a picture: training takes the first, scores all", where,
         name);
  return field;
}

// The rows of the columns that a row may use; other columns are not read.
std::vector<Row> rows_of_table(const Table& table, const Columns& columns) {
  const arrow::Schema& schema = *table.schema();
  std::set<int> wanted;
  for (const std::string& name : row_columns(columns))
    if (const int field = schema.GetFieldIndex(name); field >= 0) wanted.insert(field);
  const bool has_rows = !wanted.empty();
  for (int i = 0; i < schema.num_fields(); ++i) {
    const std::string& name = schema.field(i)->name();
    if (is_foreign_column(name))
      wanted.insert(i);
    else if (columns.unread != nullptr && !wanted.contains(i))
      columns.unread->insert(shortened(name, 60));
  }
  if (!has_rows)
    throw UserError(
        "{}: a row needs \"{}\" and \"{}\", \"messages\", \"question\" and \"answer\", \"prompt\" "
        "and "
        "\"completion\", or \"text\"; columns found: {}",
        table.name(), columns.instruction, columns.output, fmt::join(schema.field_names(), ", "));
  std::vector<Row> rows;
  for (int64_t i = 0; i < table.count(); ++i) {
    nlohmann::ordered_json object = nlohmann::ordered_json::object();
    for (const int field : wanted) {
      const ArrowRows::Chunk chunk = table.at(field, i);
      object[schema.field(field)->name()] = json_at(*chunk.column, chunk.row);
    }
    rows.push_back(row_from_json(object, columns, table.where(i)));
  }
  return rows;
}

}  // namespace

std::shared_ptr<const PictureRows> open_hugging_face_pictures(const HuggingFaceOptions& options) {
  const std::vector<fs::path> files = hugging_face_files(options);
  if (!is_arrow_file(files.front()) && options.image_column == "auto") return nullptr;
  Table table(files);
  const arrow::Schema& schema = *table.schema();
  const int images = find_images(schema, options.image_column, table.name());
  if (images < 0) return nullptr;
  const int captions =
      find_captions(schema, options.text_column, options.captions_needed, table.name());
  return std::make_shared<HuggingFacePictures>(std::move(table), images, captions);
}

std::vector<Row> read_arrow_rows(const std::vector<fs::path>& files, const Columns& columns) {
  const Table table(files);
  std::vector<Row> rows = rows_of_table(table, columns);
  for (size_t i = 0; i < rows.size(); ++i)
    for (std::string& picture : rows[i].pictures)
      picture = (table.path(static_cast<int64_t>(i)).parent_path() / picture).string();
  return rows;
}

std::string read_compressed(const fs::path& path) {
  constexpr int64_t kPiece = int64_t{1} << 20, kLeastLimit = int64_t{1} << 30;
  constexpr int64_t kMostRatio = 200;  // a few bytes may stand for any number of equal ones
  const std::string name = path.string();
  const bool is_gzip = path.extension() == ".gz";
  const char* kind = is_gzip ? "gzip" : "zstd";
  const auto file = value_or_throw(arrow::io::ReadableFile::Open(name), name, kind);
  const int64_t limit = kLeastLimit + kMostRatio * value_or_throw(file->GetSize(), name, kind);
  const auto codec = value_or_throw(
      arrow::util::Codec::Create(is_gzip ? arrow::Compression::GZIP : arrow::Compression::ZSTD),
      name, kind);
  const auto stream =
      value_or_throw(arrow::io::CompressedInputStream::Make(codec.get(), file), name, kind);
  std::string text;
  while (true) {
    const size_t before = text.size();
    text.resize(before + kPiece);
    const int64_t read = value_or_throw(stream->Read(kPiece, text.data() + before), name, kind);
    text.resize(before + static_cast<size_t>(read));
    if (read == 0) return text;
    if (std::ssize(text) > limit)
      throw UserError(
          "{}: decompressed it takes more than the {} that a file of this size may take; "
          "decompress "
          "it if it is not damaged",
          name, format_bytes(limit));
  }
}

bool parquet_available() { return true; }

std::vector<Row> read_parquet_rows(const std::filesystem::path& path, const Columns& columns) {
  return rows_of_table(Table({path}), columns);
}

}  // namespace snug::data
