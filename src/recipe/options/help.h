// What a newcomer reads: `snug --help`, a command's help grouped by theme, the reference page in
// docs/reference/options.md and the shells' completion scripts, all written from the option tables.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace snug::recipe {

// The word after a command's --help, and after its name in `snug help`, that asks for every option.
inline constexpr std::string_view kAllOptions = "all";

// Common: of a command with very many options those that most people need.
enum class HelpOf { Common, All };

// Help of a command, or of the program when `command` is empty; lines are at most `width` wide.
std::string help_text(std::string_view command, int width = 80, bool color = false,
                      HelpOf options = HelpOf::Common);

// The Markdown page docs/reference/options.md.
std::string reference_page();

// A script for "bash", "zsh" or "fish"; throws UserError for another shell.
std::string completion_script(std::string_view shell);

}  // namespace snug::recipe
