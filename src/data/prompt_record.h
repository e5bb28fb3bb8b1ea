// How a model was asked while it was trained, kept beside it: prompt_style.json, LitGPT's name for
// LitGPT's key "class_path", with two more that say it for all styles.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace snug::data {

struct PromptRecord {
  std::string style;                // as PromptStyle::make() takes it
  std::optional<bool> mask_prompt;  // whether prompts had no loss; LitGPT does not say
};

// Of a model's or an adapter's folder. Nothing where there is none, or one that cannot be read or
// names a style that is not known here, which is warned of.
std::optional<PromptRecord> read_prompt_record(const std::filesystem::path& folder);
void write_prompt_record(const std::filesystem::path& folder, const PromptRecord& record);
// What is said of the model in `from` is said of the one in `to`.
void copy_prompt_record(const std::filesystem::path& from, const std::filesystem::path& to);

}  // namespace snug::data
