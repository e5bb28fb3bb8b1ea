// A suite as a test writes it: the keys that every one needs, and what the test is about.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <fstream>
#include <stdexcept>
#include <string>

#include "base/error.h"
#include "lab/suite/suite.h"
#include "support/temp_folder.h"

namespace snug::test {

// Five lines in front; `rest` begins in line 6.
inline std::string suite_text(const std::string& rest) {
  return fmt::format(
      "suite: mine\n"
      "device: a100-80\n"
      "models:\n"
      "  small: {{checkpoint: ckpt/small, config: {0}/recipes/models/tiny-llama.json, scaled: "
      "{0}/recipes/models/smollm2-135m.json}}\n"
      "  large: {{checkpoint: ckpt/large, config: {0}/recipes/models/open-llama-7b.json}}\n"
      "{1}",
      SNUG_SOURCE_DIR, rest);
}

inline lab::Suite read_text(const std::string& text) {
  const TempFolder folder;
  std::ofstream(folder / "mine.yaml") << text;
  return lab::read_suite(folder / "mine.yaml");
}

inline lab::Suite read_rest(const std::string& rest) { return read_text(suite_text(rest)); }

// What reading it says; empty where it says nothing.
inline std::string fault_of(const std::string& text) {
  try {
    read_text(text);
  } catch (const UserError& error) {
    return error.what();
  }
  return {};
}

inline const lab::Row& row(const lab::Suite& suite, const std::string& id) {
  for (const lab::Row& row : suite.rows)
    if (row.id == id) return row;
  throw std::out_of_range("no row " + id);
}

}  // namespace snug::test
