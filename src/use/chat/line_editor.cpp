// SPDX-License-Identifier: Apache-2.0
#include "use/chat/line_editor.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "report/text_width.h"

namespace snug::use {
namespace {

constexpr char key(char letter) { return static_cast<char>(letter & 0x1f); }  // with Ctrl
constexpr char kDelete = 0x7f;
constexpr char kEscape = 0x1b;

bool continues(char byte) { return (static_cast<unsigned char>(byte) & 0xc0) == 0x80; }

// The length of a UTF-8 sequence with this first byte; 0: invalid.
size_t sequence_length(char first) {
  const auto byte = static_cast<unsigned char>(first);
  if (byte < 0x80) return 1;
  if (byte >= 0xc2 && byte < 0xe0) return 2;
  if (byte >= 0xe0 && byte < 0xf0) return 3;
  return byte >= 0xf0 && byte < 0xf5 ? 4 : 0;
}

size_t next_character(std::string_view text, size_t at) {
  if (at < text.size()) ++at;
  while (at < text.size() && continues(text[at])) ++at;
  return at;
}

// Text laid out in rows, which end at the screen's width or a line feed.
struct Layout {
  std::string rows = {};  // with "\r\n" between them
  size_t row = 0, column = 0;
  size_t cursor_row = 0, cursor_column = 0;

  void start_row() {
    rows += "\r\n";
    ++row;
    column = 0;
  }
  void put(std::string_view character, size_t columns) {
    if (character == "\n") return start_row();
    const std::string shown = printable(character);
    const size_t width = report::display_width(shown);
    if (column + width > columns) start_row();
    rows += shown;
    column += width;
  }
  // After writing the last column, a terminal keeps its cursor there.
  void keep_cursor(size_t columns) {
    if (column >= columns) start_row();
    cursor_row = row;
    cursor_column = column;
  }
};

Layout lay_out(std::string_view prompt, std::string_view text, size_t cursor, size_t columns) {
  Layout layout;
  for (size_t at = 0; at < prompt.size();) {
    const size_t next = next_character(prompt, at);
    layout.put(prompt.substr(at, next - at), columns);
    at = next;
  }
  for (size_t at = 0; at < text.size();) {
    if (at == cursor) layout.keep_cursor(columns);
    const size_t next = next_character(text, at);
    layout.put(text.substr(at, next - at), columns);
    at = next;
  }
  if (cursor >= text.size()) layout.keep_cursor(columns);
  return layout;
}

}  // namespace

void LineEditor::begin() {
  text_.clear();
  cursor_ = 0;
  typed_.clear();
  character_.clear();
  recalled_ = history_.size();
  drawn_row_ = 0;
}

void LineEditor::remember(const std::string& entry) {
  if (!entry.empty() && (history_.empty() || history_.back() != entry)) history_.push_back(entry);
  recalled_ = history_.size();
}

LineEditor::Event LineEditor::feed(char byte) {
  switch (state_) {
    case State::Escape:
      return escape(byte);
    case State::Parameters:
      if ((byte >= '0' && byte <= '9') || byte == ';') {
        parameters_ += byte;
        return Event::None;
      }
      state_ = State::Plain;
      return sequence(byte);
    case State::Shifted:
      state_ = State::Plain;
      return sequence(byte);
    case State::Plain:
      break;
  }
  if (byte == kEscape) {
    state_ = State::Escape;
    return Event::None;
  }
  if (is_pasting_) return pasted(byte);
  const auto code = static_cast<unsigned char>(byte);
  return code < 0x20 || byte == kDelete ? control(byte) : put(byte);
}

LineEditor::Event LineEditor::control(char byte) {
  character_.clear();
  switch (byte) {
    case '\r':
    case '\n':
      return Event::Entered;
    case '\t':
      return insert("\t");
    case kDelete:
    case key('H'):
      return erase(before(cursor_), cursor_);
    case key('A'):
      return move(0);
    case key('B'):
      return move(before(cursor_));
    case key('C'):
      return Event::Interrupt;
    case key('D'):
      return text_.empty() ? Event::End : erase(cursor_, after(cursor_));
    case key('E'):
      return move(text_.size());
    case key('F'):
      return move(after(cursor_));
    case key('K'):
      cut_ = text_.substr(cursor_);
      return erase(cursor_, text_.size());
    case key('L'):
      return Event::ClearScreen;
    case key('N'):
      return recall(false);
    case key('P'):
      return recall(true);
    case key('U'):
      cut_ = text_.substr(0, cursor_);
      return erase(0, cursor_);
    case key('W'): {
      const size_t word = word_before(cursor_);
      cut_ = text_.substr(word, cursor_ - word);
      return erase(word, cursor_);
    }
    case key('Y'):
      return insert(cut_);
    case key('Z'):
      return Event::Suspend;
    default:
      return Event::None;
  }
}

LineEditor::Event LineEditor::escape(char byte) {
  parameters_.clear();
  state_ = byte == '[' ? State::Parameters : byte == 'O' ? State::Shifted : State::Plain;
  switch (byte) {
    case 'b':
      return move(word_before(cursor_));
    case 'f':
      return move(word_after(cursor_));
    case 'd':
      return erase(cursor_, word_after(cursor_));
    case kDelete:
      return erase(word_before(cursor_), cursor_);
    default:
      return Event::None;
  }
}

LineEditor::Event LineEditor::sequence(char last) {
  if (last == '~') return tilde();
  if (is_pasting_) return Event::None;
  const bool by_words = parameters_.ends_with(";5") || parameters_.ends_with(";3");
  switch (last) {
    case 'A':
      return recall(true);
    case 'B':
      return recall(false);
    case 'C':
      return move(by_words ? word_after(cursor_) : after(cursor_));
    case 'D':
      return move(by_words ? word_before(cursor_) : before(cursor_));
    case 'H':
      return move(0);
    case 'F':
      return move(text_.size());
    default:
      return Event::None;
  }
}

LineEditor::Event LineEditor::tilde() {
  if (parameters_ == "200" || parameters_ == "201") {
    is_pasting_ = parameters_ == "200";
    return Event::None;
  }
  if (is_pasting_) return Event::None;
  if (parameters_ == "1" || parameters_ == "7") return move(0);
  if (parameters_ == "4" || parameters_ == "8") return move(text_.size());
  if (parameters_ == "3") return erase(cursor_, after(cursor_));
  return Event::None;
}

// A line feed in pasted text is inserted and does not end the line.
LineEditor::Event LineEditor::pasted(char byte) {
  if (byte == '\r' || byte == '\n') return insert("\n");
  const auto code = static_cast<unsigned char>(byte);
  if (byte == '\t' || (code >= 0x20 && byte != kDelete)) return put(byte);
  return Event::None;
}

// Bytes are held until their character is complete; invalid bytes are dropped.
LineEditor::Event LineEditor::put(char byte) {
  if (!character_.empty() && !continues(byte)) character_.clear();
  character_ += byte;
  const size_t length = sequence_length(character_.front());
  if (character_.size() < length) return Event::None;
  return insert(length == 0 ? std::string() : std::exchange(character_, {}));
}

LineEditor::Event LineEditor::insert(std::string_view piece) {
  character_.clear();
  text_.insert(cursor_, piece);
  cursor_ += piece.size();
  return Event::Changed;
}

LineEditor::Event LineEditor::erase(size_t begin, size_t end) {
  text_.erase(begin, end - begin);
  cursor_ = begin;
  return Event::Changed;
}

LineEditor::Event LineEditor::move(size_t to) {
  cursor_ = to;
  return Event::Changed;
}

LineEditor::Event LineEditor::recall(bool older) {
  if (older ? recalled_ == 0 : recalled_ == history_.size()) return Event::None;
  if (recalled_ == history_.size()) typed_ = text_;
  recalled_ += older ? size_t{0} - 1 : 1;
  text_ = recalled_ == history_.size() ? typed_ : history_[recalled_];
  return move(text_.size());
}

// Combining marks without a column of their own belong to the letter before them.
size_t LineEditor::before(size_t at) const {
  while (at > 0) {
    const size_t end = at--;
    while (at > 0 && continues(text_[at])) --at;
    const std::string_view character = std::string_view(text_).substr(at, end - at);
    if (character == "\n" || report::display_width(printable(character)) > 0) break;
  }
  return at;
}

size_t LineEditor::after(size_t at) const {
  at = next_character(text_, at);
  while (at < text_.size() && text_[at] != '\n') {
    const size_t end = next_character(text_, at);
    if (report::display_width(printable(std::string_view(text_).substr(at, end - at))) > 0) break;
    at = end;
  }
  return at;
}

size_t LineEditor::word_before(size_t at) const {
  const auto is_blank = [&](size_t i) { return text_[i] == ' ' || text_[i] == '\n'; };
  while (at > 0 && is_blank(at - 1)) --at;
  while (at > 0 && !is_blank(at - 1)) --at;
  return at;
}

size_t LineEditor::word_after(size_t at) const {
  const auto is_blank = [&](size_t i) { return text_[i] == ' ' || text_[i] == '\n'; };
  while (at < text_.size() && is_blank(at)) ++at;
  while (at < text_.size() && !is_blank(at)) ++at;
  return at;
}

std::string LineEditor::drawing(std::string_view prompt, size_t columns) {
  const Layout layout = lay_out(prompt, text_, cursor_, std::max<size_t>(columns, 2));
  const auto up = [](size_t rows) { return rows > 0 ? fmt::format("\x1b[{}A", rows) : ""; };
  std::string out = up(drawn_row_) + "\r\x1b[J" + layout.rows + up(layout.row - layout.cursor_row);
  out += "\r";
  if (layout.cursor_column > 0) out += fmt::format("\x1b[{}C", layout.cursor_column);
  drawn_row_ = layout.cursor_row;
  return out;
}

std::string LineEditor::last_drawing(std::string_view prompt, size_t columns) {
  cursor_ = text_.size();
  std::string out = drawing(prompt, columns) + "\r\n";
  drawn_row_ = 0;
  return out;
}

}  // namespace snug::use
