// SPDX-License-Identifier: Apache-2.0
#include "recipe/options/suite_names.h"

#include <cstdlib>
#include <map>
#include <sstream>
#include <system_error>

#include "base/installed.h"

namespace snug::recipe {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> suite_folders() {
  std::vector<fs::path> folders;
  if (const char* chosen = std::getenv("SNUG_SUITES")) {
    std::istringstream text(chosen);
    for (std::string folder; std::getline(text, folder, ':');) folders.emplace_back(folder);
  }
  folders.emplace_back("recipes/lab");
  for (const fs::path& place : shipped_places("recipes/lab")) folders.push_back(place);
  return folders;
}

}  // namespace

std::vector<fs::path> suite_files() {
  std::map<std::string, fs::path> files;  // by name
  for (const fs::path& folder : suite_folders()) {
    std::error_code error;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder, error))
      if (entry.path().extension() == ".yaml") files.emplace(entry.path().stem(), entry.path());
  }
  std::vector<fs::path> sorted;
  for (const auto& [name, file] : files) sorted.push_back(file);
  return sorted;
}

std::vector<std::string> suite_names() {
  std::vector<std::string> names;
  for (const fs::path& file : suite_files()) names.push_back(file.stem().string());
  return names;
}

}  // namespace snug::recipe
