// Editing of a line: its text, cursor, history and place on the screen. Takes the bytes of a
// terminal in raw mode and returns escape sequences to write; line_input.h handles the terminal
// itself.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace snug::use {

class LineEditor {
 public:
  enum class Event { None, Changed, Entered, Interrupt, End, Suspend, ClearScreen };
  // Takes the next byte from the terminal. End: Ctrl-D on an empty line.
  Event feed(char byte);
  // Inside an escape sequence; if nothing follows soon, it was the Escape key alone.
  bool is_in_sequence() const { return state_ != State::Plain; }
  void leave_sequence() { state_ = State::Plain; }

  const std::string& text() const { return text_; }
  size_t cursor() const { return cursor_; }  // in bytes
  // Starts a new, empty line.
  void begin();
  // Adds an entry to the history.
  void remember(const std::string& entry);

  // Draws prompt and text over the previous drawing, on a screen of this many columns.
  std::string drawing(std::string_view prompt, size_t columns);
  // The same, with the cursor on a new line after it.
  std::string last_drawing(std::string_view prompt, size_t columns);
  // The screen was cleared.
  void forget_drawing() { drawn_row_ = 0; }

 private:
  enum class State { Plain, Escape, Parameters, Shifted };

  Event control(char byte);
  Event escape(char byte);
  Event sequence(char last);
  Event tilde();
  Event pasted(char byte);
  Event put(char byte);
  Event insert(std::string_view piece);
  Event erase(size_t begin, size_t end);
  Event move(size_t to);
  Event recall(bool older);
  size_t before(size_t at) const;
  size_t after(size_t at) const;
  size_t word_before(size_t at) const;
  size_t word_after(size_t at) const;

  std::string text_;
  size_t cursor_ = 0;
  std::string cut_;  // text cut by Ctrl-K, Ctrl-U and Ctrl-W, for Ctrl-Y
  std::vector<std::string> history_;
  size_t recalled_ = 0;  // index in history_; its size: the line being typed
  std::string typed_;    // the typed line, while an older one is shown

  State state_ = State::Plain;
  std::string parameters_;   // of an escape sequence
  std::string character_;    // bytes of an incomplete UTF-8 sequence
  bool is_pasting_ = false;  // between the marks of a bracketed paste
  size_t drawn_row_ = 0;     // the row of the cursor, counted from the first row drawn
};

}  // namespace snug::use
