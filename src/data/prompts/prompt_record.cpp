// SPDX-License-Identifier: Apache-2.0
#include "data/prompts/prompt_record.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "data/prompts/prompt_style.h"

namespace snug::data {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kName = "prompt_style.json";
constexpr size_t kMaxBytes = size_t{1} << 20;

struct LitgptClass {
  const char *name, *style;
};
constexpr LitgptClass kClasses[] = {{"litgpt.prompts.Alpaca", "alpaca"},
                                    {"litgpt.prompts.FLAN", "flan"},
                                    {"litgpt.prompts.Longform", "longform"},
                                    {"litgpt.prompts.Default", "plain"}};

std::string style_in(const json& record) {
  if (const auto style = record.find("prompt_style"); style != record.end() && style->is_string())
    return *style;
  const auto path = record.find("class_path");
  if (path == record.end() || !path->is_string()) return "";
  for (const LitgptClass& known : kClasses)
    if (*path == known.name) return known.style;
  return *path;
}

}  // namespace

std::optional<PromptRecord> read_prompt_record(const fs::path& folder) {
  const fs::path file = folder / kName;
  if (std::error_code ignored; !fs::is_regular_file(file, ignored)) return std::nullopt;
  json read;
  try {
    read = json::parse(read_file(file, kMaxBytes));
  } catch (const std::exception& error) {
    warn("{} is ignored: {}", file.string(), error.what());
    return std::nullopt;
  }
  PromptRecord record;
  if (read.is_object()) record.style = style_in(read);
  if (std::ranges::count(PromptStyle::names(), record.style) == 0) {
    warn("{} is ignored: it names no known prompt style; choose one with --prompt_style",
         file.string());
    return std::nullopt;
  }
  if (const auto mask = read.find("mask_prompt"); mask != read.end() && mask->is_boolean())
    record.mask_prompt = mask->get<bool>();
  return record;
}

void write_prompt_record(const fs::path& folder, const PromptRecord& record) {
  json written{{"prompt_style", record.style}};
  if (record.mask_prompt) written["mask_prompt"] = *record.mask_prompt;
  for (const LitgptClass& known : kClasses)
    if (record.style == known.style) written["class_path"] = known.name;
  write_file_atomically(folder / kName, written.dump(2) + "\n");
}

void copy_prompt_record(const fs::path& from, const fs::path& to) {
  if (const auto record = read_prompt_record(from)) write_prompt_record(to, *record);
}

}  // namespace snug::data
