// Writes the captions of `snug caption`: lines of text or JSON, or a file beside each picture.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
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
  std::optional<int64_t> index;         // of the row in a data set, counted from 0
  std::vector<std::string> references;  // the captions in the data set
};

// The caption file beside a picture: photo.txt for photo.jpg.
std::filesystem::path text_beside(std::filesystem::path picture);

// Throws UserError if options.out cannot be written. Call it before loading a model.
void check_caption_output(const recipe::CaptionOptions& options);

class CaptionWriter {
 public:
  // Opens options.out. Borrows the options.
  explicit CaptionWriter(const recipe::CaptionOptions& options);
  CaptionWriter(const CaptionWriter&) = delete;
  CaptionWriter& operator=(const CaptionWriter&) = delete;
  ~CaptionWriter();  // removes options.out if it is new and no caption was written

  // Whether the lines go to standard output.
  bool shows() const { return options_.out.empty() && !options_.beside; }

  // Writes and flushes one caption.
  void write(const CaptionLine& line);

 private:
  void write_beside(const std::filesystem::path& picture, const std::string& text);

  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  const recipe::CaptionOptions& options_;
  std::unique_ptr<std::FILE, Close> file_;
  bool is_new_ = false;
  bool has_written_ = false;
  std::map<std::filesystem::path, std::filesystem::path> beside_;  // the picture of each file
};

}  // namespace snug::use
