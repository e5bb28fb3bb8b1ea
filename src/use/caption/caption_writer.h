// Writes the captions of `snug caption`: lines of text or JSON, or a file beside each picture; and
// shows progress.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
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
  std::map<std::filesystem::path, std::filesystem::path> beside_;  // the picture of each file
};

// The progress over many pictures, on one line of standard error that is rewritten in place. Shows
// nothing if standard error is not a terminal.
class ProgressLine {
 public:
  ProgressLine(size_t total, bool wanted);
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void show(size_t done) const;
  void clear() const;  // before other output; the next show() draws it again
  double seconds() const;

 private:
  size_t total_;
  bool shown_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace snug::use
