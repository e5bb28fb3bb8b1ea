// `snug --help`, a command's help grouped by theme, the reference page docs/reference/options.md
// and the shells' completion scripts, all written from the option tables.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace snug::recipe {

// As in `snug COMMAND --help all` and `snug help COMMAND all`.
inline constexpr std::string_view kAllOptions = "all";

// Common: only the most common options, for a command with very many.
enum class HelpOf { Common, All };

// Help of a command, or of the program when `command` is empty; lines are at most `width` wide.
std::string help_text(std::string_view command, int width = 80, bool color = false,
                      HelpOf options = HelpOf::Common);

// The Markdown page docs/reference/options.md.
std::string reference_page();

// A script for "bash", "zsh" or "fish"; throws UserError for another shell.
std::string completion_script(std::string_view shell);

}  // namespace snug::recipe
