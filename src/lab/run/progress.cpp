// SPDX-License-Identifier: Apache-2.0
#include "lab/run/progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/terminal.h"
#include "base/text.h"
#include "lab/report/figures.h"
#include "report/text_width.h"

namespace snug::lab {
namespace {

constexpr int kBarColumns = 24;
// Autowrap off while a line is drawn, so that a window made narrower cuts it and does not fold it.
constexpr std::string_view kBegin = "\r\x1b[?7l", kEndOfLine = "\x1b[K", kDone = "\x1b[?7h";

std::string bar(double share, int columns) {
  const int full = static_cast<int>(std::clamp(share, 0.0, 1.0) * columns);
  std::string text;
  for (int i = 0; i < columns; ++i) text += i < full ? "━" : "─";
  return text;
}

// Name, bar and words on one line. If it is too narrow, the bar shrinks first; then whole words are
// dropped from the end.
std::string live_line(const std::string& name, double share, std::vector<std::string> words,
                      int width) {
  constexpr int kLeastBar = 4;
  const auto columns_of_words = [&] {
    size_t columns = report::display_width(name);
    for (const std::string& word : words) columns += 2 + report::display_width(word);
    return static_cast<int>(columns);
  };
  while (words.size() > 1 && columns_of_words() > width) words.pop_back();
  const int left = width - columns_of_words() - 2;
  std::string line = name;
  if (share >= 0 && left >= kLeastBar) line += "  " + bar(share, std::min(left, kBarColumns));
  for (const std::string& word : words) line += "  " + word;
  return report::fit_columns(line, static_cast<size_t>(std::max(width, 1)));
}

std::string figures_text(const RowResult& result) {
  const std::optional<Figures>& figures = result.measured ? result.measured : result.predicted;
  if (!figures) return "";
  std::string text = format_bytes(needed_bytes(*figures));
  if (figures->peak_reserved > 0) text += " reserved";
  if (result.limit_bytes > 0) text += fmt::format(" of {}", format_bytes(result.limit_bytes));
  if (is_close(*figures, result.limit_bytes)) text += " (close)";
  if (result.like)
    text += fmt::format(", {} {}{}", result.like_program, format_bytes(needed_bytes(*result.like)),
                        result.like->fits ? "" : " (does not fit)");
  if (figures->step_seconds > 0)
    text += fmt::format(", {}/step", seconds_text(figures->step_seconds));
  return text;
}

}  // namespace

std::string row_line(int number, int total, size_t id_columns, const RowResult& result,
                     bool is_kept) {
  const size_t digits = std::to_string(total).size();
  std::string line = fmt::format("[{:>{}}/{}] {:<{}}  {:<7}", number, digits, total, result.id,
                                 id_columns, name(result.outcome));
  std::string what = result.outcome == Outcome::Ok ? figures_text(result) : "";
  if (!result.reason.empty()) {
    if (!what.empty()) what += "; ";
    what += printable(first_line(result.reason));
  }
  if (result.outcome == Outcome::OutOfMemory && result.like)
    what += fmt::format("; {} {}{}", result.like_program, format_bytes(needed_bytes(*result.like)),
                        result.like->fits ? " (fits)" : "");
  if (is_kept) what += what.empty() ? "kept" : " (kept)";
  if (!what.empty()) line += " " + what;
  return line;
}

std::string suite_bar(const std::string& suite, int done, int total, double seconds_left,
                      int width) {
  const double share = total > 0 ? static_cast<double>(done) / total : 0;
  std::vector<std::string> words{fmt::format("{} of {} rows", done, total)};
  if (seconds_left >= 0)
    words.push_back(fmt::format("about {} left", report::clock_text(seconds_left)));
  return live_line(suite, share, std::move(words), width);
}

std::string row_bar(const RowStatus& status, int width) {
  const std::string name = printable(status.id);
  if (!status.live) return live_line(name, -1, {printable(status.doing)}, width);
  const report::LiveState& live = *status.live;
  const double share = live.total_steps > 0 ? static_cast<double>(live.step) / live.total_steps : 0;
  std::vector<std::string> words{printable(live.state)};
  if (live.total_steps > 0) words.push_back(fmt::format("step {}/{}", live.step, live.total_steps));
  if (live.step > 0 && std::isfinite(live.loss))
    words.push_back(fmt::format("loss {:.3f}", live.loss));
  if (live.peak > 0)
    words.push_back(format_bytes(live.peak) +
                    (live.budget > 0 ? " of " + format_bytes(live.budget) : std::string()));
  return live_line(name, share, std::move(words), width);
}

Progress::Progress(std::FILE* out, bool is_tty) : out_(out), is_tty_(is_tty) {
  messages_.emplace([this](const std::string& text) { say(text); });
}

Progress::~Progress() {
  messages_.reset();
  const std::lock_guard lock(mutex_);
  erase();
}

void Progress::begin_suite(const std::string& name, int total, size_t id_columns, bool says_rows) {
  const std::lock_guard lock(mutex_);
  says_rows_ = says_rows;
  suite_ = name;
  total_ = total;
  ended_ = newly_ended_ = 0;
  id_columns_ = id_columns;
  begun_ = last_ended_ = std::chrono::steady_clock::now();
}

// Rows that were kept took no time.
double Progress::seconds_left() const {
  if (newly_ended_ == 0) return -1;
  using Seconds = std::chrono::duration<double>;
  const double a_row = Seconds(last_ended_ - begun_).count() / newly_ended_;
  const double so_far = Seconds(std::chrono::steady_clock::now() - last_ended_).count();
  return std::max(0.0, a_row * (total_ - ended_) - so_far);
}

void Progress::add_rows(int more) {
  const std::lock_guard lock(mutex_);
  total_ += more;
}

void Progress::show(const RowStatus& status) {
  const std::lock_guard lock(mutex_);
  status_ = status;
  draw();
}

void Progress::row_ended(const RowResult& result, bool is_kept) {
  const std::lock_guard lock(mutex_);
  ++ended_;
  if (!is_kept) ++newly_ended_;
  last_ended_ = std::chrono::steady_clock::now();
  status_ = {};
  if (says_rows_)
    print(row_line(ended_, total_, id_columns_, result, is_kept));
  else
    draw();
}

void Progress::say(const std::string& text) {
  const std::lock_guard lock(mutex_);
  print(text);
}

void Progress::print(const std::string& text) {
  const bool was_drawn = is_drawn_;
  erase();
  std::string lines = text.ends_with('\n') ? text : text + '\n';
  if (is_tty_)
    lines = report::folded(lines, static_cast<size_t>(terminal_size(::fileno(out_)).columns));
  std::fputs(lines.c_str(), out_);
  std::fflush(out_);
  if (was_drawn) draw();
}

void Progress::end_suite() {
  const std::lock_guard lock(mutex_);
  erase();
  status_ = {};
}

void Progress::draw() {
  if (!is_tty_) return;
  const int width = std::max(terminal_size(::fileno(out_)).columns - 1, 1);
  std::string text = is_drawn_ ? "\x1b[1A" : "";
  text += fmt::format("{}{}{}\n\r{}{}{}", kBegin,
                      suite_bar(suite_, ended_, total_, seconds_left(), width), kEndOfLine,
                      row_bar(status_, width), kEndOfLine, kDone);
  std::fwrite(text.data(), 1, text.size(), out_);
  std::fflush(out_);
  is_drawn_ = true;
}

void Progress::erase() {
  if (!is_drawn_) return;
  std::fputs("\r\x1b[K\x1b[1A\r\x1b[K", out_);
  std::fflush(out_);
  is_drawn_ = false;
}

}  // namespace snug::lab
