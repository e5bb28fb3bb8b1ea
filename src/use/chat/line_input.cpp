// SPDX-License-Identifier: Apache-2.0
#include "use/chat/line_input.h"

#include <poll.h>
#include <signal.h>
#include <termios.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <string_view>

#include "base/terminal.h"

namespace snug::use {
namespace {

// A terminal sends the bytes of one key at once; a key typed after Escape comes later.
constexpr int kSequenceMilliseconds = 50;

constexpr int kFatal[] = {SIGTERM, SIGHUP, SIGQUIT};

// Global, because signal handlers restore the terminal.
struct termios cooked_mode;

void write_out(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(STDOUT_FILENO, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    text.remove_prefix(static_cast<size_t>(written));
  }
}

// First the mode, or a Ctrl-C of someone who sees the line end would be a mere byte of input.
void leave_raw_mode() {
  ::tcsetattr(STDIN_FILENO, TCSADRAIN, &cooked_mode);
  write_out("\x1b[?2004l");
}

void enter_raw_mode() {
  struct termios raw = cooked_mode;
  raw.c_iflag &= ~static_cast<tcflag_t>(ICRNL | IXON);
  raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO | IEXTEN | ISIG);
  raw.c_cc[VMIN] = 1;
  raw.c_cc[VTIME] = 0;
  ::tcsetattr(STDIN_FILENO, TCSADRAIN, &raw);
  write_out("\x1b[?2004h");  // marks the start and end of pasted text
}

void on_fatal(int signal_number) {
  leave_raw_mode();
  ::signal(signal_number, SIG_DFL);
  ::raise(signal_number);
}

// Puts the terminal in raw mode while this object exists.
class RawMode {
 public:
  RawMode() {
    std::fflush(stdout);
    ::tcgetattr(STDIN_FILENO, &cooked_mode);
    for (const int one : kFatal) ::signal(one, on_fatal);
    enter_raw_mode();
  }
  ~RawMode() {
    leave_raw_mode();
    for (const int one : kFatal) ::signal(one, SIG_DFL);
  }
  RawMode(const RawMode&) = delete;
  RawMode& operator=(const RawMode&) = delete;

  // Ctrl-Z: stops with the original terminal settings until the shell continues the program.
  static void suspend() {
    leave_raw_mode();
    ::raise(SIGTSTP);
    enter_raw_mode();
  }
};

size_t columns() { return static_cast<size_t>(terminal_size(STDOUT_FILENO).columns); }

}  // namespace

bool LineInput::is_possible() { return ::isatty(STDIN_FILENO) == 1 && can_draw(STDOUT_FILENO); }

// -1: the terminal is closed.
int LineInput::next_byte() {
  while (at_ >= read_ahead_.size()) {
    pollfd keys{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
    const int wait = editor_.is_in_sequence() ? kSequenceMilliseconds : -1;
    const int ready = ::poll(&keys, 1, wait);
    if (ready == 0) editor_.leave_sequence();
    if (ready == 0 || (ready < 0 && errno == EINTR)) continue;
    char bytes[256];
    const ssize_t size = ::read(STDIN_FILENO, bytes, sizeof bytes);
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return -1;
    read_ahead_.assign(bytes, static_cast<size_t>(size));
    at_ = 0;
  }
  return static_cast<unsigned char>(read_ahead_[at_++]);
}

LineInput::Typed LineInput::read(const std::string& prompt) {
  const RawMode raw;
  editor_.begin();
  write_out(editor_.drawing(prompt, columns()));
  while (true) {
    const int byte = next_byte();
    if (byte < 0) return {Outcome::End};
    switch (editor_.feed(static_cast<char>(byte))) {
      case LineEditor::Event::None:
        break;
      case LineEditor::Event::Changed:
        // Pasted text is drawn once, at its end.
        if (at_ >= read_ahead_.size()) write_out(editor_.drawing(prompt, columns()));
        break;
      case LineEditor::Event::Entered:
        write_out(editor_.last_drawing(prompt, columns()));
        return {Outcome::Line, editor_.text()};
      case LineEditor::Event::Interrupt: {
        std::string drawn = editor_.last_drawing(prompt, columns());
        write_out(drawn.insert(drawn.size() - 2, "^C"));
        return {Outcome::Cleared};
      }
      case LineEditor::Event::End:
        write_out(editor_.last_drawing(prompt, columns()));
        return {Outcome::End};
      case LineEditor::Event::Suspend:
        RawMode::suspend();
        editor_.forget_drawing();
        write_out(editor_.drawing(prompt, columns()));
        break;
      case LineEditor::Event::ClearScreen:
        editor_.forget_drawing();
        write_out("\x1b[H\x1b[2J" + editor_.drawing(prompt, columns()));
        break;
    }
  }
}

}  // namespace snug::use
