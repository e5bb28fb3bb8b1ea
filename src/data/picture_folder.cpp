// SPDX-License-Identifier: Apache-2.0
#include "data/picture_folder.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/error.h"
#include "base/files.h"
#include "base/text.h"
#include "data/column_names.h"
#include "data/row_from_json.h"

namespace snug::data {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// Where each record of the mapped metadata begins and ends; its text is parsed when it is asked
// for.
struct Record {
  size_t begin = 0, end = 0;
};

// A CSV record ends at a line's end that stands in no quotes. Quotes open at a field's beginning
// only: elsewhere they are inches and the like.
size_t end_of_record(std::string_view text, size_t at, bool is_csv) {
  bool quoted = false;
  for (const size_t begin = at; at < text.size(); ++at) {
    const bool opens = at == begin || text[at - 1] == ',';
    if (is_csv && text[at] == '"') {
      if (quoted && text.substr(at + 1).starts_with('"'))
        ++at;  // two of them are one in the text
      else if (quoted || opens)
        quoted = !quoted;
    }
    if (text[at] == '\n' && !quoted) break;
  }
  return at;
}

std::vector<Record> records_of(std::string_view text, bool is_csv) {
  std::vector<Record> records;
  size_t at = text.starts_with("\xEF\xBB\xBF") ? 3 : 0;
  while (at < text.size()) {
    const size_t end = end_of_record(text, at, is_csv);
    if (text.substr(at, end - at).find_first_not_of(" \t\r") != std::string_view::npos)
      records.push_back({at, end});
    at = end + 1;
  }
  return records;
}

// The fields of one record (RFC 4180).
std::vector<std::string> csv_fields(std::string_view record) {
  if (record.ends_with('\r')) record.remove_suffix(1);
  std::vector<std::string> fields(1);
  bool quoted = false;
  for (size_t i = 0; i < record.size(); ++i) {
    const char c = record[i];
    const bool opens = i == 0 || record[i - 1] == ',';
    if (quoted && c == '"' && i + 1 < record.size() && record[i + 1] == '"')
      fields.back() += record[++i];
    else if (c == '"' && (quoted || opens))
      quoted = !quoted;
    else if (c == ',' && !quoted)
      fields.emplace_back();
    else
      fields.back() += c;
  }
  return fields;
}

class PictureFolder : public PictureRows {
 public:
  PictureFolder(const fs::path& metadata, const PictureFolderOptions& options)
      : file_(metadata),
        is_csv_(metadata.extension() == ".csv"),
        records_(records_of(text(), is_csv_)) {
    if (is_csv_ && !records_.empty()) {
      header_ = csv_fields(record(0));
      records_.erase(records_.begin());
    }
    if (records_.empty()) throw UserError("{} holds no rows", name());
    const std::vector<std::string> columns = columns_of(row(0));
    image_column_ =
        choose_column(options.image_column, columns, kPathColumns, "data.image_column", name());
    text_column_ =
        choose_column(options.text_column, columns, kTextColumns, "data.text_column", name());
    if (image_column_.empty() || text_column_.empty())
      throw UserError("{}: which column holds the {}? Name it with {}; columns found: {}", name(),
                      image_column_.empty() ? "pictures' file names" : "captions",
                      image_column_.empty() ? "--data.image_column" : "--data.text_column",
                      fmt::join(columns, ", "));
  }

  int64_t count() const override { return std::ssize(records_); }

  std::vector<std::optional<std::string>> captions(std::span<const int64_t> rows) const override {
    std::vector<std::optional<std::string>> captions;
    for (const int64_t index : rows) captions.push_back(value(row(index), text_column_, index));
    return captions;
  }

  PictureBytes picture(int64_t index) const override {
    const auto picture = std::make_shared<MappedFile>(file(index));
    return {picture->bytes(), picture};
  }

  std::string file(int64_t index) const override {
    const auto file_name = value(row(index), image_column_, index);
    if (!file_name || file_name->empty()) throw UserError("{}: no {}", place(index), image_column_);
    return (file_.path().parent_path() / *file_name).string();
  }

  std::string where(int64_t index) const override {
    try {
      return fmt::format("{} ({})", place(index),
                         shortened(value(row(index), image_column_, index).value_or(""), 80));
    } catch (const UserError&) {
      return place(index);
    }
  }

 private:
  std::string name() const { return file_.path().string(); }
  std::string place(int64_t index) const { return fmt::format("{}: row {}", name(), index + 1); }
  std::string_view text() const {
    return {reinterpret_cast<const char*>(file_.bytes().data()), file_.bytes().size()};
  }
  std::string_view record(int64_t index) const {
    const Record& found = records_[static_cast<size_t>(index)];
    return text().substr(found.begin, found.end - found.begin);
  }

  json row(int64_t index) const {
    const std::string_view text = record(index);
    if (find_invalid_utf8(text) != std::string_view::npos)
      throw UserError("{}: not valid UTF-8", place(index));
    json object =
        is_csv_ ? csv_row(text, index) : json::parse(text.begin(), text.end(), nullptr, false);
    if (!object.is_object()) throw UserError("{}: not a JSON object on one line", place(index));
    return object;
  }

  json csv_row(std::string_view text, int64_t index) const {
    const std::vector<std::string> fields = csv_fields(text);
    if (fields.size() != header_.size())
      throw UserError("{}: {} fields, but the first line names {}", place(index), fields.size(),
                      header_.size());
    json object = json::object();
    for (size_t i = 0; i < fields.size(); ++i) object[header_[i]] = fields[i];
    return object;
  }

  static std::vector<std::string> columns_of(const json& object) {
    std::vector<std::string> columns;
    for (const auto& item : object.items()) columns.push_back(shortened(item.key(), 60));
    return columns;
  }

  // Text, or the first of a list of texts.
  std::optional<std::string> value(const json& object, const std::string& column,
                                   int64_t index) const {
    const auto found = object.find(column);
    if (found == object.end() || found->is_null()) return std::nullopt;
    const json& value = found->is_array() && !found->empty() ? found->front() : *found;
    if (value.is_array()) return std::nullopt;
    if (!value.is_string())
      throw UserError("{}: \"{}\" is a {}, but text is wanted", place(index), column,
                      value.type_name());
    return value.get<std::string>();
  }

  MappedFile file_;
  bool is_csv_;
  std::vector<Record> records_;
  std::vector<std::string> header_;  // of a CSV
  std::string image_column_, text_column_;
};

}  // namespace

std::shared_ptr<const PictureRows> open_picture_folder(const PictureFolderOptions& options) {
  const fs::path& path = options.path;
  if (path.empty())
    throw UserError(
        "--data ImageFolder needs --data.path: a folder of pictures with metadata.jsonl or "
        "metadata.csv");
  if (!fs::is_directory(path))
    throw UserError("data.path: {} {}", path.string(),
                    fs::exists(path) ? "is no folder" : "does not exist");
  // Only the training part may lie in the folder itself: another one by its name, or not at all.
  std::vector<fs::path> folders = {path / options.split};
  if (options.split == "train") folders.push_back(path);
  for (const fs::path& folder : folders)
    for (const char* name : {"metadata.jsonl", "metadata.csv"})
      if (fs::is_regular_file(folder / name))
        return std::make_shared<PictureFolder>(folder / name, options);
  if (options.split != "train")
    throw UserError(
        "{}: no split {} (data.split): {} holds neither metadata.jsonl nor metadata.csv",
        path.string(), options.split, (path / options.split).string());
  const bool saved = fs::exists(path / "dataset_dict.json") || fs::exists(path / "state.json");
  throw UserError("{}: neither metadata.jsonl nor metadata.csv, with file_name and text a row{}",
                  path.string(), saved ? "; a data set of save_to_disk is --data HFDataset" : "");
}

}  // namespace snug::data
