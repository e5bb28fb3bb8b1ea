// SPDX-License-Identifier: Apache-2.0
#include "use/caption/caption_source.h"

#include <glob.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <set>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "data/pictures/picture_folder.h"
#include "data/rows/hugging_face.h"
#include "use/caption/caption_writer.h"

namespace snug::use {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 14> kEndings = {".jpg", ".jpeg", ".jpe",  ".png",  ".gif",
                                                       ".bmp", ".webp", ".tif",  ".tiff", ".ppm",
                                                       ".pgm", ".avif", ".heic", ".heif"};

bool is_named_as_picture(const fs::path& file) {
  std::string ending = file.extension().string();
  std::transform(ending.begin(), ending.end(), ending.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return std::ranges::find(kEndings, ending) != kEndings.end();
}

// Files that desktops create beside pictures (._photo.jpg, .thumbnails).
bool is_hidden(const fs::path& path) { return path.filename().string().starts_with('.'); }

// A link that leads nowhere counts: that it cannot be read is to be said.
bool may_be_file(const fs::directory_entry& entry) {
  std::error_code lost;
  return entry.is_regular_file(lost) || (entry.is_symlink(lost) && !entry.is_directory(lost));
}

std::vector<fs::path> pictures_below(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code fault;
  fs::recursive_directory_iterator entry(folder, fault), end;
  for (; !fault && entry != end; entry.increment(fault)) {
    if (is_hidden(entry->path()))
      entry.disable_recursion_pending();
    else if (is_named_as_picture(entry->path()) && may_be_file(*entry))
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

// Files as named, whatever their endings; all files in folders whose endings are those of pictures;
// and matches of patterns (*, ?, […]). Each once, folders and patterns in alphabetical order.
// Throws UserError for a word without a match.
std::vector<fs::path> find_pictures(const std::vector<std::string>& words) {
  std::vector<fs::path> all;
  std::set<fs::path> known;
  for (const std::string& word : words)
    for (const fs::path& file : pictures_of(word))
      if (known.insert(file.lexically_normal()).second) all.push_back(file);
  return all;
}

bool names_data(const recipe::CaptionOptions& options) { return !options.data.class_path.empty(); }

void check_source(const recipe::CaptionOptions& options) {
  const recipe::DataOptions& d = options.data;
  if (!names_data(options) && !d.path.empty())
    throw UserError(
        "data.path = {}: also give its kind, --data ImageFolder (pictures with a metadata file) or "
        "--data HFDataset",
        d.path);
  if (names_data(options) && !options.images.empty())
    throw UserError("--data {} and {} both name pictures; keep one", d.class_path,
                    options.images.front());
  if (!names_data(options) && options.images.empty())
    throw UserError(
        "snug caption needs pictures: files, folders or patterns after the model, or a data set "
        "with --data ImageFolder --data.path FOLDER");
}

void check_output(const recipe::CaptionOptions& options) {
  if (options.beside && !options.out.empty())
    throw UserError(
        "--beside writes one file per picture, --out one file for all; give one of them");
  if (options.beside && options.format != "text")
    throw UserError("--beside writes plain text; leave --format {} out", options.format);
  if (options.beside && names_data(options))
    throw UserError(
        "--beside needs picture files; write the captions of a data set to one file with --out "
        "FILE");
  if (options.score && !names_data(options))
    throw UserError(
        "--score needs a data set with captions; give one with --data ImageFolder or --data "
        "HFDataset");
}

// The files without a caption file beside them.
std::vector<fs::path> without_caption(std::vector<fs::path> files) {
  const size_t all = files.size();
  std::erase_if(files, [](const fs::path& file) { return fs::exists(text_beside(file)); });
  if (files.size() < all)
    warn(
        "{} of {} pictures have a .txt file beside them and are skipped; --force overwrites those "
        "files",
        with_commas(static_cast<int64_t>(all - files.size())),
        with_commas(static_cast<int64_t>(all)));
  return files;
}

std::shared_ptr<const data::PictureRows> open_files(const recipe::CaptionOptions& options) {
  std::vector<fs::path> files = find_pictures(options.images);
  if (options.beside && !options.force) files = without_caption(std::move(files));
  return data::picture_files(std::move(files));
}

std::shared_ptr<const data::PictureRows> open_data_set(const recipe::CaptionOptions& options) {
  const recipe::DataOptions& d = options.data;
  const bool needed = options.score;
  std::shared_ptr<const data::PictureRows> rows;
  if (d.class_path == "ImageFolder")
    rows = data::open_picture_folder({d.path, d.split, d.image_column, d.text_column, needed});
  else
    rows = data::open_hugging_face_pictures({.path = d.path,
                                             .split = d.split,
                                             .subset = d.subset,
                                             .image_column = d.image_column,
                                             .text_column = d.text_column,
                                             .captions_needed = needed});
  if (rows == nullptr)
    throw UserError(
        "{}: no column seems to hold pictures; name the column with their bytes or paths with "
        "--data.image_column",
        d.path);
  return rows;
}

}  // namespace

CaptionSource open_caption_source(const recipe::CaptionOptions& options) {
  check_source(options);
  check_output(options);
  CaptionSource source{.rows = names_data(options) ? open_data_set(options) : open_files(options),
                       .is_data = names_data(options)};
  source.count = source.rows->count();
  if (options.limit) source.count = std::min(source.count, *options.limit);
  return source;
}

}  // namespace snug::use
