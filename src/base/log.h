// Messages beside the program's own output: warnings always, details with --verbose. Standard
// error.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>

namespace snug {

void set_verbose(bool on);
bool is_verbose();

// "warning: …" once per distinct text, so that a loop cannot flood the terminal.
void log_warning(const std::string& text);
void log_detail(const std::string& text);

template <class... Args>
void warn(fmt::format_string<Args...> format, Args&&... args) {
  log_warning(fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void detail(fmt::format_string<Args...> format, Args&&... args) {
  if (is_verbose()) log_detail(fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace snug
