// SPDX-License-Identifier: Apache-2.0
#include "data/pictures/picture_folder.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "base/error.h"
#include "base/files.h"
#include "base/text.h"
#include "data/pictures/caption_list.h"
#include "data/rows/csv.h"
#include "data/rows/row_from_json.h"

namespace snug::data {
namespace {

namespace fs = std::filesystem;
using json = nlohmann::ordered_json;

constexpr const char* kUsualNames[] = {"metadata.jsonl", "metadata.csv"};

bool is_table_name(const fs::path& file) {
  return file.extension() == ".csv" || file.extension() == ".tsv" || file.extension() == ".txt";
}

bool is_metadata_name(const fs::path& file) {
  return file.extension() == ".jsonl" || file.extension() == ".json" || is_table_name(file);
}

class PictureFolder : public PictureRows {
 public:
  PictureFolder(const fs::path& metadata, const PictureFolderOptions& options)
      : path_(metadata), folder_(metadata.parent_path()), file_(std::in_place, metadata) {
    if (metadata.extension() == ".json") {
      list_ = captions_in_json(text(), name());
    } else {
      if (is_table_name(metadata)) separator_ = separator_of(text());
      records_ = records_of(text(), separator_, name());
    }
    if (is_csv() && !records_.empty()) {
      header_ = csv_fields(record(0), separator_);
      records_.erase(records_.begin());
    }
    choose_columns(options);
    find_pictures();
  }
  // The pictures of a folder, in the order of the list.
  PictureFolder(const fs::path& folder, std::vector<json> list, const PictureFolderOptions& options)
      : path_(folder), folder_(folder), list_(std::move(list)) {
    choose_columns(options);
  }

  int64_t count() const override {
    return list_.empty() ? std::ssize(records_) : std::ssize(list_);
  }

  std::vector<std::optional<std::string>> captions(std::span<const int64_t> rows) const override {
    std::vector<std::optional<std::string>> captions;
    for (const int64_t index : rows) {
      const std::vector<std::string> all = references(index);
      captions.push_back(all.empty() ? std::nullopt : std::optional(all.front()));
    }
    return captions;
  }

  std::vector<std::string> references(int64_t index) const override {
    if (!has_captions()) return {};
    std::vector<std::string> all = texts(row(index), text_column_, index);
    std::erase_if(all, is_blank);
    return all;
  }

  bool has_captions() const override { return !text_column_.empty(); }

  PictureBytes picture(int64_t index) const override {
    const std::string path = file(index);
    try {
      const auto picture = std::make_shared<MappedFile>(path);
      return {picture->bytes(), picture};
    } catch (const UserError& error) {
      throw UserError("{}: {}", place(index), error.what());
    }
  }

  std::string file(int64_t index) const override {
    const std::string name = file_name(index);
    if (name.empty()) throw UserError("{}: no {}", place(index), image_column_);
    return (folder_ / name).string();
  }

  std::string where(int64_t index) const override {
    try {
      return fmt::format("{} ({})", place(index), shortened(file_name(index), 80));
    } catch (const UserError&) {
      return place(index);
    }
  }

 private:
  void choose_columns(const PictureFolderOptions& options) {
    if (count() == 0) throw UserError("{} holds no rows", name());
    const std::vector<std::string> columns = columns_of(row(0));
    image_column_ =
        choose_column(options.image_column, columns, kPathColumns, "data.image_column", name());
    text_column_ =
        choose_column(options.text_column, columns, kTextColumns, "data.text_column", name());
    if (image_column_.empty() || (text_column_.empty() && options.captions_needed))
      throw UserError("{}: which column holds the {}? Name it with {}; columns found: {}", name(),
                      image_column_.empty() ? "pictures' file names" : "captions",
                      image_column_.empty() ? "--data.image_column" : "--data.text_column",
                      fmt::join(columns, ", "));
  }

  // Flickr's captions lie beside a folder with the pictures, COCO's in a folder beside it.
  void find_pictures() {
    const json first = row(0);
    if (!first[image_column_].is_string()) return;
    const std::string name = first[image_column_];
    std::error_code ignored;
    if (fs::exists(folder_ / name, ignored)) return;
    const fs::path here = folder_.empty() ? "." : folder_;
    for (const fs::path& around : {here, here / ".."})
      for (const fs::directory_entry& entry : fs::directory_iterator(around, ignored)) {
        if (!entry.is_directory(ignored) || !fs::exists(entry.path() / name, ignored)) continue;
        folder_ = entry.path().lexically_normal();
        return;
      }
  }

  bool is_csv() const { return separator_ != 0; }
  std::string name() const { return path_.string(); }
  std::string place(int64_t index) const { return fmt::format("{}: row {}", name(), index + 1); }
  std::string_view text() const {
    return {reinterpret_cast<const char*>(file_->bytes().data()), file_->bytes().size()};
  }
  std::string_view record(int64_t index) const {
    const Record& found = records_[static_cast<size_t>(index)];
    return text().substr(found.begin, found.end - found.begin);
  }

  json row(int64_t index) const {
    if (!list_.empty()) return list_[static_cast<size_t>(index)];
    const std::string_view text = record(index);
    if (find_invalid_utf8(text) != std::string_view::npos)
      throw UserError("{}: not valid UTF-8", place(index));
    json object =
        is_csv() ? csv_row(text, index) : json::parse(text.begin(), text.end(), nullptr, false);
    if (!object.is_object())
      throw UserError(
          "{}: not a JSON object on one line{}", place(index),
          text.starts_with('[') ? "; of a list write one element a line (jq -c '.[]')" : "");
    return object;
  }

  json csv_row(std::string_view text, int64_t index) const {
    const std::vector<std::string> fields = csv_fields(text, separator_);
    if (fields.size() != header_.size())
      throw UserError("{}: {} fields, but the first line names {}{}", place(index), fields.size(),
                      header_.size(),
                      fields.size() > header_.size()
                          ? fmt::format("; a text with \"{}\" in it stands in double quotes",
                                        separator_ == '\t' ? "tab" : std::string(1, separator_))
                          : "");
    json object = json::object();
    for (size_t i = 0; i < fields.size(); ++i) object[header_[i]] = fields[i];
    return object;
  }

  static std::vector<std::string> columns_of(const json& object) {
    std::vector<std::string> columns;
    for (const auto& item : object.items()) columns.push_back(shortened(item.key(), 60));
    return columns;
  }

  std::string file_name(int64_t index) const {
    const std::vector<std::string> names = texts(row(index), image_column_, index);
    return names.empty() ? "" : names.front();
  }

  // A text, or those of a list.
  std::vector<std::string> texts(const json& object, const std::string& column,
                                 int64_t index) const {
    const auto found = object.find(column);
    if (found == object.end()) return {};
    std::vector<std::string> all;
    for (const json& value : found->is_array() ? *found : json::array({*found})) {
      if (value.is_null()) continue;
      if (!value.is_string())
        throw UserError("{}: \"{}\" is a {}, but must be text", place(index), column,
                        value.type_name());
      all.push_back(value.get<std::string>());
    }
    return all;
  }

  fs::path path_, folder_;  // of the captions; of the pictures
  std::optional<MappedFile> file_;
  char separator_ = 0;               // of a CSV; 0: lines of JSON
  std::vector<Record> records_;      // their text is parsed when it is asked for
  std::vector<json> list_;           // in their place
  std::vector<std::string> header_;  // of a CSV
  std::string image_column_, text_column_;
};

// The metadata file in a folder, "" if there is none.
fs::path metadata_in(const fs::path& folder) {
  for (const char* name : kUsualNames)
    if (fs::is_regular_file(folder / name)) return folder / name;
  return {};
}

// What a folder without metadata.jsonl and metadata.csv holds instead, as the end of a sentence.
std::string what_else(const fs::path& folder) {
  if (fs::exists(folder / "dataset_dict.json") || fs::exists(folder / "state.json"))
    return "; a data set of save_to_disk is --data HFDataset";
  std::vector<std::string> files, splits;
  bool parquet = false, is_empty = true;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const fs::path& path = entry.path();
    is_empty = false;
    if (path.filename().string().starts_with('.')) continue;
    if (entry.is_directory() && !metadata_in(path).empty())
      splits.push_back(path.filename().string());
    const bool is_text = path.extension() == ".txt" && path.filename() != "captions.txt";
    if (entry.is_regular_file() && is_metadata_name(path) && !is_text)
      files.push_back(path.string());
    parquet = parquet || path.extension() == ".parquet" || path.extension() == ".arrow";
  }
  std::sort(files.begin(), files.end());
  std::sort(splits.begin(), splits.end());
  if (is_empty) return "; the folder is empty";
  if (!splits.empty())
    return fmt::format("; splits found: {}; choose one with --data.split", fmt::join(splits, ", "));
  if (!files.empty())
    return fmt::format("; if {} says it, name it with --data.path", fmt::join(files, " or "));
  if (parquet) return "; Parquet and Arrow files are --data HFDataset";
  return R"(; write one line a picture: {"file_name": "0001.jpg", "text": "its caption"})";
}

class PictureFiles : public PictureRows {
 public:
  explicit PictureFiles(std::vector<fs::path> files) : files_(std::move(files)) {}

  int64_t count() const override { return std::ssize(files_); }
  std::vector<std::optional<std::string>> captions(std::span<const int64_t> rows) const override {
    return std::vector<std::optional<std::string>>(rows.size());
  }
  bool has_captions() const override { return false; }
  PictureBytes picture(int64_t row) const override {
    const auto picture = std::make_shared<MappedFile>(file(row));
    return {picture->bytes(), picture};
  }
  std::string file(int64_t row) const override { return files_.at(static_cast<size_t>(row)); }
  std::string where(int64_t row) const override { return file(row); }

 private:
  std::vector<fs::path> files_;
};

}  // namespace

std::shared_ptr<const PictureRows> picture_files(std::vector<fs::path> files) {
  return std::make_shared<PictureFiles>(std::move(files));
}

std::shared_ptr<const PictureRows> open_picture_folder(const PictureFolderOptions& options) {
  const fs::path& path = options.path;
  if (path.empty())
    throw UserError(
        "--data ImageFolder needs --data.path: a folder of pictures with metadata.jsonl or "
        "metadata.csv");
  if (fs::is_regular_file(path) && is_metadata_name(path))
    return std::make_shared<PictureFolder>(path, options);
  if (!fs::is_directory(path))
    throw UserError("data.path: {} {}", path.string(),
                    fs::exists(path)
                        ? "is neither a folder nor a .jsonl, .json, .csv, .tsv or .txt file"
                        : "does not exist");
  // Only the training part may lie in the folder itself: another one by its name, or not at all.
  std::vector<fs::path> folders = {path / options.split};
  if (options.split == "train") folders.push_back(path);
  for (const fs::path& folder : folders)
    if (const fs::path metadata = metadata_in(folder); !metadata.empty())
      return std::make_shared<PictureFolder>(metadata, options);
  for (const fs::path& folder : folders)
    if (fs::is_directory(folder))
      if (std::vector<json> list = captions_beside(folder); !list.empty())
        return std::make_shared<PictureFolder>(folder, std::move(list), options);
  if (options.split != "train")
    throw UserError(
        "{}: no split {} (data.split): {} holds neither metadata.jsonl nor metadata.csv{}",
        path.string(), options.split, (path / options.split).string(), what_else(path));
  throw UserError("{}: neither metadata.jsonl nor metadata.csv, with file_name and text a row{}",
                  path.string(), what_else(path));
}

std::string choose_column(const std::string& wanted, const std::vector<std::string>& found,
                          std::span<const std::string_view> usual, const char* option,
                          const std::string& where) {
  if (wanted == "auto") {
    for (const std::string_view name : usual)
      if (std::find(found.begin(), found.end(), name) != found.end()) return std::string(name);
    return "";
  }
  if (std::find(found.begin(), found.end(), wanted) != found.end()) return wanted;
  const std::string near = nearest_name(wanted, found);
  throw UserError("{}: no column {} ({}){}; columns found: {}", where, wanted, option,
                  near.empty() ? "" : "; did you mean " + near + "?", fmt::join(found, ", "));
}

}  // namespace snug::data
