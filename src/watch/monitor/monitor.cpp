// SPDX-License-Identifier: Apache-2.0
#include "watch/monitor/monitor.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <thread>

#include "base/terminal.h"
#include "watch/monitor/follow.h"
#include "watch/monitor/look.h"
#include "watch/monitor/terminal.h"
#include "watch/monitor/view.h"

namespace snug::monitor {
namespace {

void print(const std::string& line) {
  std::fputs((line + "\n").c_str(), stdout);
  std::fflush(stdout);
}

void print_view(const Look& look) {
  const int columns = can_draw(STDOUT_FILENO) ? terminal_size(STDOUT_FILENO).columns : 100;
  for (const std::string& line : view(look, {.columns = columns, .style = style_of(STDOUT_FILENO)}))
    print(line);
}

// A reader that went away ends this by SIGPIPE, as it does any filter.
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

// What was seen last stays on the screen that the person comes back to.
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
