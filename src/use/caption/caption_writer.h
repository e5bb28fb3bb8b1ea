// Where the captions of `snug caption` go: lines of text or JSON, or a file beside each picture.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "recipe/options/commands.h"

namespace snug::use {

struct CaptionLine {
  std::string file, caption;
  std::optional<int64_t> index;         // of the row in a data set, from 0
  std::vector<std::string> references;  // what the data says
};

// The file of captions beside a picture: photo.txt of photo.jpg.
std::filesystem::path text_beside(std::filesystem::path picture);

// Throws UserError where options.out may not be written: before a model is loaded.
void check_caption_output(const recipe::CaptionOptions& options);

class CaptionWriter {
 public:
  // Opens options.out. Borrows the options.
  explicit CaptionWriter(const recipe::CaptionOptions& options);

  // Whether the lines go to standard output.
  bool shows() const { return options_.out.empty() && !options_.beside; }

  // One at a time, and each is on its way when the next begins.
  void write(const CaptionLine& line);

 private:
  void write_beside(const std::filesystem::path& picture, const std::string& text);

  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  const recipe::CaptionOptions& options_;
  std::unique_ptr<std::FILE, Close> file_;
  std::map<std::filesystem::path, std::filesystem::path> beside_;  // which picture's text it was
};

}  // namespace snug::use
