// What a text on its way to a person may hold: the terminal behind a descriptor, and what the
// environment says of letters and colours.
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace snug {

struct TextStyle {
  bool unicode = true;
  bool colours = true;
};

// A terminal that understands positions and colours.
bool can_draw(int descriptor);

// NO_COLOR is set to something.
bool colours_are_refused();

// UTF-8 by LC_ALL, LC_CTYPE, LANG; colours where it can draw, unless they are refused.
TextStyle style_of(int descriptor);

struct TerminalSize {
  int columns = 80, rows = 24;
};
// Asked anew each time; 80 x 24 where it is no terminal, or one that does not say.
TerminalSize terminal_size(int descriptor);

}  // namespace snug
