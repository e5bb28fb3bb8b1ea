// prompt_style.json, which stores beside a model the prompts it was trained with: LitGPT's key
// "class_path" and two more keys, which cover all styles.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace snug::data {

struct PromptRecord {
  std::string style;                // as PromptStyle::make() takes it
  std::optional<bool> mask_prompt;  // whether prompts had no loss; unset in LitGPT's files
};

// Reads it from a model's or an adapter's folder. None if there is no such file; also, with a
// warning, if it cannot be read or names an unknown style.
std::optional<PromptRecord> read_prompt_record(const std::filesystem::path& folder);
void write_prompt_record(const std::filesystem::path& folder, const PromptRecord& record);
// Copies the file from one model's folder to another's.
void copy_prompt_record(const std::filesystem::path& from, const std::filesystem::path& to);

}  // namespace snug::data
