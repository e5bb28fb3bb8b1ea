// SPDX-License-Identifier: Apache-2.0
#include "use/caption/picture_files.h"

#include <glob.h>

#include <algorithm>
#include <array>
#include <set>

#include "base/error.h"

namespace snug::use {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 11> kEndings = {
    ".jpg", ".jpeg", ".jpe", ".png", ".gif", ".bmp", ".webp", ".tif", ".tiff", ".ppm", ".pgm"};

bool is_named_as_picture(const fs::path& file) {
  std::string ending = file.extension().string();
  std::transform(ending.begin(), ending.end(), ending.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return std::ranges::find(kEndings, ending) != kEndings.end();
}

// What desktops leave beside pictures (._photo.jpg, .thumbnails) is none of the person's.
bool is_hidden(const fs::path& path) { return path.filename().string().starts_with('.'); }

std::vector<fs::path> pictures_below(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code fault;
  fs::recursive_directory_iterator entry(folder, fault), end;
  for (; !fault && entry != end; entry.increment(fault)) {
    if (is_hidden(entry->path()))
      entry.disable_recursion_pending();
    else if (entry->is_regular_file() && is_named_as_picture(entry->path()))
      found.push_back(entry->path());
  }
  if (fault) throw UserError("{} cannot be read: {}", folder.string(), fault.message());
  if (found.empty())
    throw UserError("{} has no pictures: no file in it ends in .jpg, .png or the like",
                    folder.string());
  std::sort(found.begin(), found.end());
  return found;
}

std::vector<fs::path> matches(const std::string& pattern) {
  glob_t result{};
  std::vector<fs::path> found;
  if (::glob(pattern.c_str(), 0, nullptr, &result) == 0)
    for (size_t i = 0; i < result.gl_pathc; ++i) found.emplace_back(result.gl_pathv[i]);
  ::globfree(&result);
  return found;
}

std::vector<fs::path> pictures_of(const std::string& word) {
  std::error_code ignored;
  if (fs::is_directory(word, ignored)) return pictures_below(word);
  if (fs::exists(word, ignored)) return {word};
  std::vector<fs::path> found = matches(word);
  if (!found.empty()) return found;
  const bool is_pattern = word.find_first_of("*?[") != std::string::npos;
  throw UserError("{}: {}", word, is_pattern ? "no file matches" : "no such file");
}

}  // namespace

std::vector<fs::path> find_pictures(const std::vector<std::string>& words) {
  std::vector<fs::path> all;
  std::set<fs::path> known;
  for (const std::string& word : words)
    for (const fs::path& file : pictures_of(word))
      if (known.insert(file.lexically_normal()).second) all.push_back(file);
  return all;
}

}  // namespace snug::use
