// The capabilities of the terminal behind a descriptor: size, colours, UTF-8.
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace snug {

struct TextStyle {
  bool unicode = true;
  bool colours = true;
};

// Whether it is a terminal with cursor positioning and colours.
bool can_draw(int descriptor);

// Whether NO_COLOR is set and not empty.
bool colours_are_refused();

// UTF-8 by LC_ALL, LC_CTYPE, LANG; colours where it can draw, unless they are refused.
TextStyle style_of(int descriptor);

struct TerminalSize {
  int columns = 80, rows = 24;
};
// Queried on every call; 80 x 24 if it is not a terminal or its size is unknown.
TerminalSize terminal_size(int descriptor);

}  // namespace snug
