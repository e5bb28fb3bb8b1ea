// SPDX-License-Identifier: Apache-2.0
#include "data/pictures/caption_list.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/files.h"
#include "base/text.h"

namespace snug::data {
namespace {

namespace fs = std::filesystem;
using json = nlohmann::ordered_json;

// Longer texts are no captions.
constexpr size_t kMostCaptionBytes = size_t{1} << 20;

const json& list_at(const json& object, const char* key, const std::string& name) {
  const auto found = object.find(key);
  if (found != object.end() && found->is_array()) return *found;
  throw UserError(
      "{}: neither a list of objects nor COCO's annotations, which have lists \"images\" and "
      "\"annotations\"; write [{{\"file_name\": \"0001.jpg\", \"text\": \"its caption\"}}, …]",
      name);
}

// Numbers, or texts in some copies.
std::string id_of(const json& object, const char* key, const std::string& name) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  if (!object.is_object() || found == object.end() || found->is_structured())
    throw UserError("{}: an entry has no \"{}\"", name, key);
  return found->dump();
}

std::vector<json> coco_rows(const json& whole, const std::string& name) {
  std::map<std::string, json> files;
  for (const json& image : list_at(whole, "images", name)) {
    const std::string id = id_of(image, "id", name);
    files[id] = image.value("file_name", json());
  }
  std::vector<json> rows;
  for (const json& annotation : list_at(whole, "annotations", name)) {
    const std::string id = id_of(annotation, "image_id", name);
    const auto file = files.find(id);
    if (file == files.end())
      throw UserError("{}: a caption is of the picture {}, which \"images\" has not", name, id);
    rows.push_back({{"file_name", file->second}, {"caption", annotation.value("caption", json())}});
  }
  return rows;
}

bool is_picture_name(const fs::path& file) {
  std::string ending = file.extension().string();
  std::ranges::transform(ending, ending.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return ending == ".jpg" || ending == ".jpeg" || ending == ".png" || ending == ".webp";
}

}  // namespace

std::vector<json> captions_in_json(std::string_view text, const std::string& name) {
  if (find_invalid_utf8(text) != std::string_view::npos)
    throw UserError("{}: not valid UTF-8", name);
  json whole = json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (whole.is_discarded()) throw UserError("{}: not JSON; lines of JSON are a .jsonl file", name);
  if (whole.is_object()) return coco_rows(whole, name);
  if (!whole.is_array()) list_at(json::object(), "images", name);
  std::vector<json> rows;
  for (json& row : whole) {
    if (!row.is_object()) throw UserError("{}: row {} is not an object", name, rows.size() + 1);
    rows.push_back(std::move(row));
  }
  return rows;
}

std::vector<json> captions_beside(const fs::path& folder) {
  std::vector<fs::path> pictures;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder))
    if (entry.is_regular_file() && is_picture_name(entry.path()) &&
        !entry.path().filename().string().starts_with('.'))
      pictures.push_back(entry.path());
  std::ranges::sort(pictures);
  std::vector<json> rows;
  bool any = false;
  for (const fs::path& picture : pictures) {
    fs::path beside = picture;
    beside.replace_extension(".txt");
    json text;
    if (fs::is_regular_file(beside)) {
      text = std::string(trimmed(read_file(beside, kMostCaptionBytes)));
      if (find_invalid_utf8(text.get_ref<const std::string&>()) != std::string_view::npos)
        throw UserError("{}: not valid UTF-8", beside.string());
      any = true;
    }
    rows.push_back({{"file_name", picture.filename().string()}, {"text", std::move(text)}});
  }
  if (!any) rows.clear();
  return rows;
}

}  // namespace snug::data
