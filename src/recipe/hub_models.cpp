// SPDX-License-Identifier: Apache-2.0
#include "recipe/hub_models.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/program.h"
#include "recipe/options/names.h"

namespace snug::recipe {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kTable = "recipes/models/hub.json";
const std::string kDownloads = "checkpoints/";

// False also for what cannot be a file's name at all.
bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

// A row has its config itself, or names a file beside the table.
std::string config_of(const json& row) {
  if (row.contains("config")) return row["config"].dump();
  return read_file(shipped_file("recipes/models/" + row.at("file").get<std::string>()));
}

std::vector<HubModel> read_table() {
  const fs::path file = shipped_file(kTable);
  if (!is_there(file)) return {};  // a program that was copied without what belongs to it
  const json table = json::parse(read_file(file), nullptr, false);
  SNUG_CHECK(table.is_array(), "{} is damaged", kTable);
  std::vector<HubModel> models;
  for (const json& row : table)
    models.push_back({.ids = row.at("ids"),
                      .published = row.at("published"),
                      .parameters = row.value("parameters", int64_t{0}),
                      .source = row.at("source"),
                      .config = config_of(row)});
  return models;
}

// ORG/NAME as the hub has them.
bool is_id(std::string_view word) {
  const auto is_part = [](std::string_view part) {
    return !part.empty() && part.front() != '.' && part.front() != '-' && part.front() != '~' &&
           std::ranges::all_of(part, [](unsigned char c) {
             return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.';
           });
  };
  const size_t slash = word.find('/');
  if (word.starts_with(kDownloads)) return false;
  return slash != std::string_view::npos && is_part(word.substr(0, slash)) &&
         is_part(word.substr(slash + 1));
}

bool is_file_name(std::string_view word) {
  static constexpr std::array kEndings = {".gguf",        ".json", ".yaml", ".yml", ".jsonl",
                                          ".safetensors", ".bin",  ".pth",  ".txt"};
  return std::ranges::any_of(kEndings, [&](const char* ending) { return word.ends_with(ending); });
}

}  // namespace

double HubModel::size() const {
  if (parameters > 0) return static_cast<double>(parameters);
  char* unit = nullptr;
  const double number = std::strtod(published.c_str(), &unit);
  return number * (*unit == 'M' ? 1e6 : *unit == 'T' ? 1e12 : 1e9);
}

std::span<const HubModel> hub_models() {
  static const std::vector<HubModel> table = read_table();
  return table;
}

std::string short_name(std::string_view id) { return lower(id.substr(id.find('/') + 1)); }

std::string name_before_quantization(std::string_view short_name) {
  static constexpr std::array<std::string_view, 10> kEnds = {
      "-unsloth-bnb-", "-bnb-",  "-gptq",      "-awq",   "-fp8",
      "-nvfp4",        "-mxfp4", "-quantized", "-int4-", "-w4a16"};
  size_t end = short_name.size();
  for (const std::string_view own : kEnds) end = std::min(end, short_name.find(own));
  return std::string(short_name.substr(0, end));
}

std::vector<std::string> hub_short_names() {
  std::vector<std::string> names;
  for (const HubModel& model : hub_models())
    for (const std::string& id : model.ids) names.push_back(short_name(id));
  return names;
}

std::string hub_id_of(std::string_view name) {
  const std::string wanted = lower(name);
  const bool may_begin = wanted.find_first_of("0123456789") != std::string::npos;
  std::string begun;
  int beginnings = 0;
  for (const HubModel& model : hub_models())
    for (const std::string& id : model.ids) {
      const std::string own = short_name(id);
      if (wanted == own || wanted == lower(id)) return id;
      if (!may_begin || !own.starts_with(wanted + "-")) continue;
      begun = id;
      ++beginnings;
    }
  return beginnings == 1 ? begun : "";
}

std::string id_or_word(std::string_view word) {
  std::string id = hub_id_of(word);
  return id.empty() ? std::string(word) : id;
}

const HubModel* find_hub_model(std::string_view id) {
  for (const HubModel& model : hub_models())
    if (std::ranges::find(model.ids, id) != model.ids.end()) return &model;
  return nullptr;
}

std::vector<const HubModel*> hub_models_like(std::string_view part) {
  const std::string wanted = lower(part);
  std::vector<const HubModel*> found;
  for (const HubModel& model : hub_models())
    if (std::ranges::any_of(model.ids, [&](const std::string& id) {
          return lower(id).find(wanted) != std::string::npos;
        }))
      found.push_back(&model);
  return found;
}

std::string model_folder(std::string_view word) {
  std::string name(word);
  if (name.empty() || is_file_name(name) || is_there(name)) return name;
  const bool is_short = name.find('/') == std::string::npos;
  if (!is_short && !is_id(name)) return name;
  if (const std::string id = hub_id_of(name); !id.empty()) return kDownloads + id;
  return !is_short && is_there(kDownloads + name) ? kDownloads + name : name;
}

std::string imported_model_folder(std::string_view word) {
  const std::string folder = model_folder(word);
  return is_id(folder) && !is_file_name(folder) && !is_there(folder) ? kDownloads + folder : folder;
}

}  // namespace snug::recipe
