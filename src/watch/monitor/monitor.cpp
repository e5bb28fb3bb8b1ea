// SPDX-License-Identifier: Apache-2.0
#include "watch/monitor/monitor.h"

#include <poll.h>
#include <signal.h>
#include <termios.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/terminal.h"
#include "watch/monitor/follow.h"
#include "watch/monitor/look.h"
#include "watch/monitor/view.h"

namespace snug::monitor {
namespace {

// Holds the whole screen of a terminal: the alternate screen, no cursor, keys one by one. The
// screen that was there before comes back however the program ends, even in a crash; Ctrl-Z gives
// it back until the program continues.
class Terminal {
 public:
  Terminal();
  ~Terminal();
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  void draw(const std::vector<std::string>& lines);

  enum class Event { Time, Key, Resized, Quit };
  // Waits at most `seconds`. Quit: Ctrl-C, another signal to end, or the terminal is gone. A key
  // that was pressed is in `key`.
  Event wait(double seconds, char& key);

 private:
  bool has_keys_ = false;
};

// Alternate screen, no cursor, lines cut at the edge; and back.
constexpr std::string_view kEnter = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J";
constexpr std::string_view kLeave = "\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l";

constexpr int kEnding[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
constexpr int kCrashes[] = {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL};

// There is one terminal, and signal handlers see nothing but this.
struct termios before_us;
bool has_before_us = false;
volatile sig_atomic_t wants_end = 0, was_resized = 0;

// Async-signal-safe, as all that is called in handlers must be.
void write_all(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(STDOUT_FILENO, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    text.remove_prefix(static_cast<size_t>(written));
  }
}

void leave() {
  write_all(kLeave);
  if (has_before_us) ::tcsetattr(STDIN_FILENO, TCSANOW, &before_us);
}

void enter() {
  if (has_before_us) {
    struct termios raw = before_us;
    raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);  // signals stay: Ctrl-C, Ctrl-Z
    raw.c_cc[VMIN] = 0;
    raw.c_cc[VTIME] = 0;
    ::tcsetattr(STDIN_FILENO, TCSANOW, &raw);
  }
  write_all(kEnter);
}

void on_end(int) { wants_end = 1; }
void on_resize(int) { was_resized = 1; }

void on_crash(int signal_number) {
  leave();
  ::signal(signal_number, SIG_DFL);
  ::raise(signal_number);
}

// Ctrl-Z: the screen back, asleep, and on again where it was.
void on_suspend(int) {
  const int error = errno;
  leave();
  ::raise(SIGSTOP);
  enter();
  was_resized = 1;
  errno = error;
}

void handle(int signal_number, void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  sigemptyset(&action.sa_mask);
  ::sigaction(signal_number, &action, nullptr);
}

// Signals that wait() must not miss between its check and its sleep.
sigset_t watched() {
  sigset_t set;
  sigemptyset(&set);
  for (const int one : kEnding) sigaddset(&set, one);
  for (const int one : {SIGWINCH, SIGTSTP}) sigaddset(&set, one);
  return set;
}

Terminal::Terminal() {
  wants_end = 0;
  was_resized = 0;
  has_keys_ = has_before_us = ::tcgetattr(STDIN_FILENO, &before_us) == 0;
  const sigset_t set = watched();
  ::sigprocmask(SIG_BLOCK, &set, nullptr);
  for (const int one : kEnding) handle(one, on_end);
  for (const int one : kCrashes) handle(one, on_crash);
  handle(SIGWINCH, on_resize);
  handle(SIGTSTP, on_suspend);
  enter();
}

Terminal::~Terminal() {
  leave();
  for (const int one : kEnding) handle(one, SIG_DFL);
  for (const int one : kCrashes) handle(one, SIG_DFL);
  for (const int one : {SIGWINCH, SIGTSTP}) handle(one, SIG_DFL);
  const sigset_t set = watched();
  ::sigprocmask(SIG_UNBLOCK, &set, nullptr);
  has_before_us = false;
}

// In one write, so that no half picture is seen. Each line is cleared before it is written: after a
// line that fills it, the cursor stands on its last letter.
void Terminal::draw(const std::vector<std::string>& lines) {
  std::string text = "\x1b[H";
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) text += "\r\n";
    text += "\x1b[2K";
    text += lines[i];
  }
  if (lines.size() < static_cast<size_t>(terminal_size(STDOUT_FILENO).rows)) text += "\r\n\x1b[J";
  write_all(text);
}

Terminal::Event Terminal::wait(double seconds, char& key) {
  using Clock = std::chrono::steady_clock;
  const auto until = Clock::now() + std::chrono::duration<double>(seconds);
  sigset_t open;
  ::sigprocmask(SIG_BLOCK, nullptr, &open);
  for (const int one : kEnding) sigdelset(&open, one);
  for (const int one : {SIGWINCH, SIGTSTP}) sigdelset(&open, one);
  while (true) {
    const double left = std::chrono::duration<double>(until - Clock::now()).count();
    if (left <= 0) return Event::Time;
    timespec time{.tv_sec = static_cast<time_t>(left),
                  .tv_nsec = static_cast<long>((left - std::floor(left)) * 1e9)};
    pollfd keys{.fd = has_keys_ ? STDIN_FILENO : -1, .events = POLLIN, .revents = 0};
    const int ready = ::ppoll(&keys, 1, &time, &open);
    if (wants_end != 0) return Event::Quit;
    if (was_resized != 0) {
      was_resized = 0;
      return Event::Resized;
    }
    if (ready <= 0) continue;
    if ((keys.revents & (POLLHUP | POLLERR | POLLNVAL)) != 0) return Event::Quit;
    if (::read(STDIN_FILENO, &key, 1) == 1) return Event::Key;
    return Event::Quit;  // ready, and nothing to read: its end
  }
}

void print(const std::string& line) {
  std::fputs((line + "\n").c_str(), stdout);
  std::fflush(stdout);
}

void print_view(const Look& look) {
  const int columns = can_draw(STDOUT_FILENO) ? terminal_size(STDOUT_FILENO).columns : 100;
  for (const std::string& line : view(look, {.columns = columns, .style = style_of(STDOUT_FILENO)}))
    print(line);
}

// If the reader closes the pipe, SIGPIPE ends this process.
int follow_in_lines(Follow& follow, const recipe::MonitorOptions& options) {
  std::string last;
  while (true) {
    const Look look = follow.look();
    const std::string line = options.json ? look_json(look) : plain_line(look);
    if (options.json || line != last) print(line);
    last = line;
    if (is_over(look)) {
      if (!options.json) print(ending_sentence(look));
      return 0;
    }
    std::this_thread::sleep_for(std::chrono::duration<double>(options.interval));
  }
}

// Until the run is over, which is in `look` then; false where the person had enough before.
bool watch(Follow& follow, const recipe::MonitorOptions& options, Look& look) {
  Terminal terminal;
  bool help = false;
  while (!is_over(look)) {
    const TerminalSize size = terminal_size(STDOUT_FILENO);
    terminal.draw(view(look, {.columns = size.columns,
                              .rows = size.rows,
                              .style = style_of(STDOUT_FILENO),
                              .keys = true,
                              .help = help}));
    char key = 0;
    const Terminal::Event event = terminal.wait(options.interval, key);
    if (event == Terminal::Event::Quit || key == 'q' || key == 'Q') return false;
    if (key == 'h' || key == '?') help = !help;
    if (event == Terminal::Event::Time || key == 'r') look = follow.look();
  }
  return true;
}

// The last view stays on the normal screen.
int follow_in_terminal(Follow& follow, const recipe::MonitorOptions& options) {
  Look look = follow.look();
  if (is_over(look) || watch(follow, options, look)) print_view(look);
  return 0;
}

}  // namespace

int monitor(const recipe::MonitorOptions& options) {
  Follow follow(options.run);
  if (options.once) {
    const Look look = follow.look();
    if (options.json)
      print(look_json(look));
    else
      print_view(look);
    return 0;
  }
  if (options.json || !can_draw(STDOUT_FILENO)) return follow_in_lines(follow, options);
  return follow_in_terminal(follow, options);
}

}  // namespace snug::monitor
