// The prompt of `snug generate`: an option, or what standard input holds.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

namespace snug::use {

// What a pipe or file holds, without line feeds at its end; nothing where it is a terminal, or
// holds nothing. Throws UserError where a pipe gives nothing for so many seconds.
std::optional<std::string> text_of_input(int descriptor, double seconds);

// `given`, or the text on standard input. Throws UserError where there is neither.
std::string given_prompt(const std::optional<std::string>& given);

}  // namespace snug::use
