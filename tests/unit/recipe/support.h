// Short ways to say what the tests of config say often.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "recipe/options/rows.h"
#include "recipe/parse.h"
#include "support/temp_folder.h"

namespace snug::recipe {

inline std::vector<std::string> split(const std::string& line) {
  std::istringstream stream(line);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

inline ParsedCommand parse(const std::string& line) { return parse_command_line(split(line)); }

// The message of the UserError that `call` throws; fails when it throws none.
template <class Call>
std::string error_of(Call&& call) {
  try {
    call();
  } catch (const UserError& error) {
    return error.what();
  }
  ADD_FAILURE() << "no error was thrown";
  return {};
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}
#define EXPECT_CONTAINS(text, part) \
  EXPECT_TRUE(contains(text, part)) << "looked for: " << (part) << "\nin: " << (text)

// A file that is gone when the test ends.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& content, const std::string& name = "recipe.yaml")
      : path_(folder_ / name) {
    std::ofstream(path_, std::ios::binary) << content;
  }

  const std::filesystem::path& path() const { return path_; }
  std::string string() const { return path_.string(); }

 private:
  const test::TempFolder folder_;
  const std::filesystem::path path_;
};

inline Recipe recipe_of_file(const std::filesystem::path& file,
                             const std::vector<std::string>& options = {},
                             Command command = Command::FinetuneFull) {
  std::vector<std::string> words{
      command == Command::FinetuneFull ? "finetune_full" : "finetune_lora", "--config",
      file.string()};
  words.insert(words.end(), options.begin(), options.end());
  return parse_command_line(words).recipe;
}

inline Recipe recipe_from(const std::string& yaml, const std::vector<std::string>& options = {},
                          Command command = Command::FinetuneFull) {
  return recipe_of_file(TemporaryFile(yaml).path(), options, command);
}

// Same values; who chose them does not matter.
inline bool same_values(Recipe left, Recipe right) {
  if (left.lora.enabled != right.lora.enabled) return false;
  const std::vector<Row> rows = recipe_rows(left), others = recipe_rows(right);
  for (size_t i = 0; i < rows.size(); ++i) {
    // What a run without adapters would do with adapters' settings is nothing.
    const bool counts = !rows[i].secret && (left.lora.enabled || !rows[i].lora_only);
    if (counts && yaml_text(rows[i]) != yaml_text(others[i])) return false;
  }
  return true;
}

}  // namespace snug::recipe
