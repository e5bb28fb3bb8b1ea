// SPDX-License-Identifier: Apache-2.0
#include "base/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <string>

namespace snug {
namespace {

// Empty where it is not set.
std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : value;
}

bool names_utf8(std::string locale) {
  std::ranges::transform(locale, locale.begin(), [](unsigned char c) { return std::tolower(c); });
  return locale.find("utf-8") != locale.npos || locale.find("utf8") != locale.npos;
}

// The first that is set decides, as in locale(7).
bool locale_is_utf8() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"})
    if (const std::string locale = variable(name); !locale.empty()) return names_utf8(locale);
  return false;
}

}  // namespace

bool can_draw(int descriptor) {
  const std::string kind = variable("TERM");
  return ::isatty(descriptor) == 1 && !kind.empty() && kind != "dumb";
}

bool colours_are_refused() { return !variable("NO_COLOR").empty(); }

TextStyle style_of(int descriptor) {
  return {.unicode = locale_is_utf8(), .colours = can_draw(descriptor) && !colours_are_refused()};
}

TerminalSize terminal_size(int descriptor) {
  winsize size{};
  if (::ioctl(descriptor, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0)
    return {};
  return {size.ws_col, size.ws_row};
}

}  // namespace snug
