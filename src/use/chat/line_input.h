// Lines that a person types into a terminal, with editing and what was entered before. Between two
// lines the terminal is as it was found.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "use/chat/line_editor.h"

namespace snug::use {

class LineInput {
 public:
  enum class Outcome { Line, Cleared, End };  // Cleared: Ctrl-C
  struct Typed {
    Outcome outcome = Outcome::End;
    std::string text = {};
  };

  // Whether standard input and output are a terminal in which lines can be edited.
  static bool is_possible();

  Typed read(const std::string& prompt);
  // The arrow keys bring it back.
  void remember(const std::string& entry) { editor_.remember(entry); }

 private:
  int next_byte();

  LineEditor editor_;
  std::string read_ahead_;
  size_t at_ = 0;  // in read_ahead_
};

}  // namespace snug::use
