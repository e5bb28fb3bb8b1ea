// A line while it is typed: its text, the cursor, what was entered before, and how all that stands
// on a screen. Bytes of a terminal in raw mode go in, escape sequences to write come out; the
// terminal itself is line_input.h's.
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
  // The next byte that a terminal sent. End is Ctrl-D where nothing is typed.
  Event feed(char byte);
  // Inside an escape sequence: the Escape key alone, where nothing follows soon.
  bool is_in_sequence() const { return state_ != State::Plain; }
  void leave_sequence() { state_ = State::Plain; }

  const std::string& text() const { return text_; }
  size_t cursor() const { return cursor_; }  // in bytes
  // A new line; what was typed is gone.
  void begin();
  // The arrow keys bring it back.
  void remember(const std::string& entry);

  // Writes prompt and text over what was drawn before, on a screen of so many columns.
  std::string drawing(std::string_view prompt, size_t columns);
  // The same with the cursor behind all of it, on a fresh line.
  std::string last_drawing(std::string_view prompt, size_t columns);
  // What was drawn is on the screen no more.
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
  std::string cut_;  // what Ctrl-K, Ctrl-U and Ctrl-W took, for Ctrl-Y
  std::vector<std::string> history_;
  size_t recalled_ = 0;  // in history_; its size: the line being typed
  std::string typed_;    // that line, while an older one is shown

  State state_ = State::Plain;
  std::string parameters_;   // of an escape sequence
  std::string character_;    // bytes of a UTF-8 sequence that is not whole yet
  bool is_pasting_ = false;  // between the marks of a bracketed paste
  size_t drawn_row_ = 0;     // where the cursor was left, counted from the first row drawn
};

}  // namespace snug::use
