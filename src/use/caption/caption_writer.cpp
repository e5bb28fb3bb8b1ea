// SPDX-License-Identifier: Apache-2.0
#include "use/caption/caption_writer.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/text.h"
#include "use/generate/text_generator.h"

namespace snug::use {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

std::string json_line(const CaptionLine& line) {
  json object{{"file", line.file}, {"caption", line.caption}};
  if (line.index) object["index"] = *line.index;
  if (!line.references.empty()) object["references"] = line.references;
  return object.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace

fs::path text_beside(fs::path picture) { return picture.replace_extension(".txt"); }

void check_caption_output(const recipe::CaptionOptions& options) {
  if (options.out.empty()) return;
  if (fs::is_directory(options.out))
    throw UserError(
        "--out {}: this is a folder; give a file for all captions, as in --out {}{}", options.out,
        (fs::path(options.out) / "captions.txt").string(),
        options.images.empty() ? "" : ", or use --beside to write one file beside each picture");
  if (fs::exists(options.out) && !options.force)
    throw UserError("{} exists already; --force overwrites it", options.out);
}

CaptionWriter::CaptionWriter(const recipe::CaptionOptions& options) : options_(options) {
  if (options.out.empty()) return;
  check_caption_output(options);
  is_new_ = !fs::exists(options.out);
  // What an existing file holds goes with the first caption.
  file_.reset(std::fopen(options.out.c_str(), "ab"));
  if (!file_) throw UserError("{} cannot be written: {}", options.out, std::strerror(errno));
}

CaptionWriter::~CaptionWriter() {
  std::error_code ignored;
  if (file_ && is_new_ && !has_written_) fs::remove(options_.out, ignored);
}

void CaptionWriter::write(const CaptionLine& line) {
  if (options_.beside) return write_beside(line.file, line.caption);
  std::string text =
      options_.format == "jsonl" ? json_line(line) : printable(line.file) + "\t" + line.caption;
  text += '\n';
  if (!file_) return print_piece(text);
  // A pipe or a device has nothing to empty.
  if (!has_written_ && fs::is_regular_file(options_.out)) fs::resize_file(options_.out, 0);
  has_written_ = true;
  if (std::fwrite(text.data(), 1, text.size(), file_.get()) != text.size() ||
      std::fflush(file_.get()) != 0)
    throw UserError("{}: {}", options_.out, std::strerror(errno));
}

// Pictures whose names differ only in their ending share one caption file.
void CaptionWriter::write_beside(const fs::path& picture, const std::string& text) {
  const fs::path file = text_beside(picture);
  if (const auto [first, is_new] = beside_.try_emplace(file, picture); !is_new)
    return warn("{} already holds the caption of {}; the caption of {} is: {}", file.string(),
                first->second.string(), picture.string(), text);
  write_file_atomically(file, text + "\n");
}

}  // namespace snug::use
