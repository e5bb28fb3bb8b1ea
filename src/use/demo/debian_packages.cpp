// SPDX-License-Identifier: Apache-2.0
#include "use/demo/debian_packages.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>
#include <memory>

#include "base/text.h"

namespace snug::demo {
namespace {

constexpr size_t kShortest = 20, kLongest = 80;  // characters of a description

bool is_part_of_another(std::string_view name) {
  static constexpr std::array<std::string_view, 14> kEndings = {
      "-dev",  "-dbg",      "-dbgsym", "-doc",   "-data",    "-common", "-bin",
      "-perl", "-examples", "-test",   "-tests", "-headers", "-udeb",   "-l10n"};
  return name.starts_with("lib") || name.find("-l10n") != name.npos ||
         std::any_of(kEndings.begin(), kEndings.end(),
                     [&](std::string_view ending) { return name.ends_with(ending); });
}

bool says_little(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  for (const char* word : {"transitional", "dummy", "metapackage", "debug symbols"})
    if (text.find(word) != text.npos) return true;
  if (text.find('(') == text.npos) return false;
  return text.ends_with("files)") || text.ends_with("module)") || text.ends_with("headers)");
}

size_t num_characters(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

// The value of the first field of this name in a stanza; empty where there is none.
std::string_view field(std::string_view stanza, std::string_view name) {
  for (size_t at = 0; at < stanza.size();) {
    const size_t end = std::min(stanza.find('\n', at), stanza.size());
    const std::string_view line = stanza.substr(at, end - at);
    if (line.starts_with(name) && line.substr(name.size()).starts_with(": "))
      return line.substr(name.size() + 2);
    at = end + 1;
  }
  return {};
}

std::string trimmed_end(std::string_view text) {
  return std::string(text.substr(0, text.find_last_not_of(" \t\r") + 1));
}

}  // namespace

std::string package_index() {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> pipe(
      ::popen("apt-cache dumpavail 2>/dev/null", "r"), ::pclose);
  std::string text;
  std::array<char, 1 << 16> buffer;
  while (pipe) {
    const size_t got = std::fread(buffer.data(), 1, buffer.size(), pipe.get());
    if (got == 0) break;
    text.append(buffer.data(), got);
  }
  return text;
}

std::map<std::string, std::string> described_packages(std::string_view index) {
  std::map<std::string, std::string> found;
  for (size_t at = 0; at < index.size();) {
    const size_t end = std::min(index.find("\n\n", at), index.size());
    const std::string_view stanza = index.substr(at, end - at);
    at = end + 2;
    const std::string name = trimmed_end(field(stanza, "Package"));
    std::string text = trimmed_end(field(stanza, "Description"));
    if (text.empty()) text = trimmed_end(field(stanza, "Description-en"));
    const size_t length = num_characters(text);
    const bool sound = !name.empty() && find_invalid_utf8(text) == text.npos;
    if (sound && length >= kShortest && length <= kLongest && !is_part_of_another(name) &&
        !says_little(text))
      found[name] = text;
  }
  return found;
}

}  // namespace snug::demo
