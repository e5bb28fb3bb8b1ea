// Reads lines from a terminal, with editing and history. Between lines the terminal has its
// original settings.
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

  // Whether standard input and output are a terminal that supports editing.
  static bool is_possible();

  Typed read(const std::string& prompt);
  // Adds an entry to the history.
  void remember(const std::string& entry) { editor_.remember(entry); }

 private:
  int next_byte();

  LineEditor editor_;
  std::string read_ahead_;
  size_t at_ = 0;  // in read_ahead_
};

}  // namespace snug::use
