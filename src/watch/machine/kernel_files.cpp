// SPDX-License-Identifier: Apache-2.0
#include "watch/machine/kernel_files.h"

#include <charconv>
#include <fstream>
#include <sstream>

namespace snug::machine {
namespace {

std::string_view without_blanks(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\n");
  if (first == text.npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\n") - first + 1);
}

std::optional<int64_t> number_at_start(std::string_view text) {
  text = without_blanks(text);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return std::nullopt;
  return value;
}

// The text after `name` in the first line that begins with it.
std::string_view rest_of_line(std::string_view text, std::string_view name) {
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = text.substr(at, end - at);
    if (line.starts_with(name)) {
      const std::string_view rest = line.substr(name.size());
      if (rest.empty() || rest.front() == ' ' || rest.front() == '\t' || rest.front() == ':')
        return rest;
    }
    at = end + 1;
  }
  return {};
}

}  // namespace

std::string kernel_text(const std::filesystem::path& path) {
  std::ifstream in(path);
  std::ostringstream text;
  if (in) text << in.rdbuf();
  return text.str();
}

std::optional<int64_t> kernel_number(const std::filesystem::path& path) {
  return number_at_start(kernel_text(path));
}

std::optional<int64_t> number_behind(std::string_view text, std::string_view name) {
  return number_at_start(rest_of_line(text, name));
}

std::string words_behind(std::string_view text, std::string_view name) {
  std::string_view rest = without_blanks(rest_of_line(text, name));
  if (!rest.starts_with(':')) return {};
  return std::string(without_blanks(rest.substr(1)));
}

}  // namespace snug::machine
