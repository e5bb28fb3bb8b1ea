// SPDX-License-Identifier: Apache-2.0
#include "data/rows/row_pictures.h"

#include <algorithm>
#include <iterator>

#include "base/error.h"
#include "data/pictures/picture_text.h"
#include "data/rows/row_from_json.h"

namespace snug::data {
namespace {

using json = nlohmann::ordered_json;

constexpr const char* kPictureKeys[] = {"images", "image"};
// For models that look at pictures.
constexpr const char* kMorePictureKeys[] = {"image_path", "image_file", "image_name",
                                            "img",        "pictures",   "picture"};
constexpr const char* kFileKeys[] = {"image", "path", "url", "image_url"};

// A picture's file: its path, or an object that names it.
std::string file_of(const json& value, const std::string& where) {
  if (value.is_object() && field(value, "bytes"))
    throw UserError(
        "{}: the picture is stored as bytes; save it as a file, and write its path relative to the "
        "folder of the rows",
        where);
  if (value.is_object())
    for (const char* key : kFileKeys)
      if (const json* file = field(value, key)) return file_of(*file, where);
  std::string file = text_of(value, "image", where);
  constexpr std::string_view kScheme = "file://";
  if (file.starts_with(kScheme)) return file.substr(kScheme.size());
  for (const char* start : {"http://", "https://", "data:"})
    if (file.starts_with(start))
      throw UserError(
          "{}: the picture {} is not a file; save the picture, and write its path relative to the "
          "folder of the rows",
          where, shortened(file, 60));
  return file;
}

bool is_picture(const json& part) {
  const json* type = part.is_object() ? field(part, "type") : nullptr;
  return type != nullptr && (*type == "image" || *type == "image_url");
}

// A picture's file, a list of them, or lists of lists.
void add_files(const json& value, std::vector<std::string>& files, const std::string& where) {
  const bool is_blank =
      value.is_null() || (value.is_string() && value.get_ref<const std::string&>().empty());
  if (value.is_array()) {
    for (const json& one : value) add_files(one, files, where);
  } else if (!is_blank) {
    files.push_back(file_of(value, where));
  }
}

std::string marks_of(size_t count) {
  std::string marks;
  for (size_t i = 0; i < count; ++i) marks += kPictureMark;
  return marks;
}

// Pictures of the row from `first` on that name no file get the files beside them, in their
// order; which may also list those that do.
void name_pictures(Row& row, size_t first, const std::vector<std::string>& files,
                   const std::string& where) {
  const auto begin = row.pictures.begin() + static_cast<std::ptrdiff_t>(first);
  const auto is_same = [](const std::string& own, const std::string& file) {
    return own.empty() || own == file;
  };
  if (std::equal(begin, row.pictures.end(), files.begin(), files.end(), is_same)) {
    std::ranges::copy(files, begin);
    return;
  }
  const auto unnamed = std::count(begin, row.pictures.end(), "");
  if (unnamed != std::ssize(files))
    throw UserError(
        "{}: {} part{} of type \"image\" name{} no file, and there are {} beside the turns; write "
        "{{\"type\": \"image\", \"image\": \"a.png\"}}, or \"images\": [\"a.png\", …] with one "
        "file for "
        "each",
        where, unnamed, unnamed == 1 ? "" : "s", unnamed == 1 ? "s" : "", files.size());
  auto file = files.begin();
  for (auto picture = begin; picture != row.pictures.end(); ++picture)
    if (picture->empty()) *picture = *file++;
}

}  // namespace

const json* field(const json& object, const std::string& key) {
  const auto at = object.find(key);
  return key.empty() || at == object.end() || at->is_null() ? nullptr : &*at;
}

std::string text_of(const json& value, std::string_view column, const std::string& where) {
  if (!value.is_string())
    throw UserError("{}: \"{}\" is {} {}, but must be text; write it in quotes", where, column,
                    value.is_object() || value.is_array() ? "an" : "a", value.type_name());
  return value.get<std::string>();
}

std::string content_of(const json& value, std::string_view column, Row& row,
                       const std::string& where) {
  if (!value.is_array()) return text_of(value, column, where);
  std::string text;
  for (const json& part : value) {
    if (is_picture(part)) {
      text += kPictureMark;
      const bool names_file = std::ranges::any_of(
          kFileKeys, [&](const char* key) { return field(part, key) != nullptr; });
      row.pictures.push_back(names_file ? file_of(part, where) : "");
      continue;
    }
    const json* content = part.is_object() ? field(part, "text") : &part;
    if (content == nullptr || !content->is_string())
      throw UserError(
          "{}: \"{}\" has a part of type {}; only texts and pictures "
          "are supported: {{\"type\": \"text\", \"text\": …}}, {{\"type\": \"image\", \"image\": "
          "…}}",
          where, column,
          part.is_object() ? shortened(part.value("type", json("?")).dump(), 40)
                           : part.type_name());
    text += content->get<std::string>();
  }
  return text;
}

std::string turn_text(const json& turn, const json& content, Row& row, const Columns& columns,
                      const std::string& place) {
  const size_t first = row.pictures.size();
  std::string text = content_of(content, "content", row, place);
  const std::vector<std::string> files =
      columns.pictures ? pictures_beside(turn, columns, place) : std::vector<std::string>();
  if (files.empty()) return text;
  if (row.pictures.size() > first) {
    name_pictures(row, first, files, place);
    return text;
  }
  row.pictures.insert(row.pictures.end(), files.begin(), files.end());
  return count_marks(text) > 0 ? text : marks_of(files.size()) + text;
}

std::vector<std::string> pictures_beside(const json& object, const Columns& columns,
                                         const std::string& where) {
  std::vector<std::string> files;
  const auto read = [&](const auto& keys) {
    for (const char* key : keys) {
      const json* value = field(object, key);
      if (value == nullptr || !files.empty()) continue;
      const json list = value->is_array() ? *value : json::array({*value});
      for (const json& file : list)
        if (columns.pictures || file.is_string()) add_files(file, files, where);
    }
  };
  read(kPictureKeys);
  if (columns.pictures) read(kMorePictureKeys);
  return files;
}

void place_pictures(const json& object, Row& row, const Columns& columns,
                    const std::string& where) {
  if (row.pictures.empty())
    row.pictures = pictures_beside(object, columns, where);
  else if (std::ranges::find(row.pictures, "") != row.pictures.end())
    name_pictures(row, 0, pictures_beside(object, columns, where), where);
  if (row.pictures.empty()) return;
  int64_t marks = 0;
  for (const Message& turn : row.messages) marks += count_marks(turn.content);
  if (marks == std::ssize(row.pictures)) return;
  const auto question = std::ranges::find(row.messages, "user", &Message::role);
  if (marks > 0 || question == row.messages.end())
    throw UserError(
        "{}: {} picture{}, but {} places for them in the turns; write {} once for each picture, or "
        "not at all, which puts them before the first question",
        where, row.pictures.size(), row.pictures.size() == 1 ? "" : "s", marks, kPictureMark);
  question->content.insert(0, marks_of(row.pictures.size()));
}

void drop_unanswered(Row& row) {
  std::vector<Message>& turns = row.messages;
  const auto is_answer = [](const Message& turn) { return turn.role == "assistant"; };
  const auto last = std::find_if(turns.rbegin(), turns.rend(), is_answer);
  if (row.pictures.empty() || last == turns.rend()) return;
  turns.erase(last.base(), turns.end());
  int64_t marks = 0;
  for (const Message& turn : turns) marks += count_marks(turn.content);
  row.pictures.resize(static_cast<size_t>(marks));
}

std::vector<std::string> picture_columns() {
  std::vector<std::string> all(std::begin(kPictureKeys), std::end(kPictureKeys));
  all.insert(all.end(), std::begin(kMorePictureKeys), std::end(kMorePictureKeys));
  return all;
}

}  // namespace snug::data
