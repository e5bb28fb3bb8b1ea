// SPDX-License-Identifier: Apache-2.0
#include "lab/run/row_output.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <sstream>
#include <vector>

#include "base/error.h"
#include "base/uninterrupted.h"

namespace snug::lab {
namespace {

// Text behind the last carriage return of each line, as a terminal would show it.
std::string as_shown(const std::string& line) {
  const size_t end = line.find_last_not_of('\r');
  if (end == std::string::npos) return "";
  const size_t begin = line.rfind('\r', end);
  return line.substr(begin == std::string::npos ? 0 : begin + 1, end - (begin + 1) + 1);
}

}  // namespace

RowOutput::RowOutput(const std::filesystem::path& path) : path_(path) {
  if (path.empty()) return;
  file_ = uninterrupted(
      [&] { return ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666); });
  if (file_ < 0) throw UserError("cannot create {}: {}", path.string(), std::strerror(errno));
}

RowOutput::~RowOutput() {
  if (file_ >= 0) ::close(file_);
}

void RowOutput::write(std::string_view text) {
  if (file_ < 0 || !fault_.empty()) return;
  if (written_ + text.size() > kMostOutput) {
    fault_ = fmt::format("more than {} MiB of output; the rest was left out", kMostOutput >> 20);
    text = "\n[more output was left out]\n";
  }
  while (!text.empty()) {
    const ssize_t done = ::write(file_, text.data(), text.size());
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) {
      fault_ = fmt::format("cannot write {}: {}", path_.string(), std::strerror(errno));
      return;
    }
    written_ += static_cast<size_t>(done);
    text.remove_prefix(static_cast<size_t>(done));
  }
}

Pipe::Pipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0)
    throw UserError("cannot start a process: {}", std::strerror(errno));
  reader = ends[0];
  writer = ends[1];
  ::fcntl(reader, F_SETFL, O_NONBLOCK);
}

Pipe::~Pipe() {
  close(reader);
  close(writer);
}

void Pipe::close(int& end) {
  if (end >= 0) ::close(end);
  end = -1;
}

std::string last_words_of(const std::string& errors) {
  constexpr size_t kLines = 8;
  std::vector<std::string> lines;
  std::istringstream in(errors);
  for (std::string line; std::getline(in, line);) {
    line = as_shown(line);
    if (!line.empty()) lines.push_back(std::move(line));
  }
  const auto said = std::find_if(lines.rbegin(), lines.rend(), [](const std::string& line) {
    return line.starts_with("snug: ");
  });
  size_t first = lines.size() > kLines ? lines.size() - kLines : 0;
  if (said != lines.rend()) first = static_cast<size_t>(lines.rend() - said) - 1;
  std::string text;
  for (size_t i = first; i < lines.size(); ++i) {
    if (!text.empty()) text += '\n';
    text += lines[i];
  }
  return text;
}

}  // namespace snug::lab
