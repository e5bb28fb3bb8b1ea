// SPDX-License-Identifier: Apache-2.0
#include "experiment/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "base/bytes.h"
#include "report/text_width.h"

namespace snug::experiment {
namespace {

constexpr int kBarColumns = 24;
// Autowrap off while a line is drawn, so that a window made narrower cuts it and does not fold it.
constexpr std::string_view kBegin = "\r\x1b[?7l", kEndOfLine = "\x1b[K", kDone = "\x1b[?7h";

int columns_of(std::FILE* out) {
  winsize size{};
  const bool known = ::ioctl(::fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : 80;
}

std::string bar(double share) {
  const int full = static_cast<int>(std::clamp(share, 0.0, 1.0) * kBarColumns);
  std::string text;
  for (int i = 0; i < kBarColumns; ++i) text += i < full ? "━" : "─";
  return text;
}

std::string time_text(double seconds) {
  const auto s = static_cast<int64_t>(std::clamp(seconds, 0.0, 1e8));
  if (s >= 3600) return fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
  return fmt::format("{}:{:02}", s / 60, s % 60);
}

std::string seconds_text(double seconds) {
  return seconds < 100 ? fmt::format("{:.3g} s", seconds) : fmt::format("{:.0f} s", seconds);
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

// What a device's memory has to hold: what its allocator takes, where that is known.
int64_t taken(const Figures& figures) {
  return std::max(figures.peak_allocated, figures.peak_reserved);
}

std::string figures_text(const RowResult& result) {
  const std::optional<Figures>& figures = result.measured ? result.measured : result.predicted;
  if (!figures) return "";
  std::string text = format_bytes(taken(*figures));
  if (result.limit_bytes > 0) text += fmt::format(" of {}", format_bytes(result.limit_bytes));
  if (result.like)
    text += fmt::format(", {} {}{}", result.like_program, format_bytes(taken(*result.like)),
                        result.like->fits ? "" : " (does not fit)");
  if (figures->step_seconds > 0)
    text += fmt::format(", {} a step", seconds_text(figures->step_seconds));
  return text;
}

}  // namespace

std::string row_line(int number, int total, size_t id_columns, const RowResult& result,
                     bool is_kept) {
  const size_t digits = std::to_string(total).size();
  std::string line = fmt::format("[{:>{}}/{}] {:<{}}  {:<7}", number, digits, total, result.id,
                                 id_columns, name(result.outcome));
  std::string what = result.outcome == Outcome::Ok ? figures_text(result) : "";
  if (!result.reason.empty()) what = report::printable(first_line(result.reason));
  if (result.outcome == Outcome::OutOfMemory && result.like)
    what += fmt::format("; {} {}{}", result.like_program, format_bytes(taken(*result.like)),
                        result.like->fits ? " (fits)" : "");
  if (is_kept) what += what.empty() ? "kept" : " (kept)";
  if (!what.empty()) line += " " + what;
  return line;
}

std::string suite_bar(const std::string& suite, int done, int total, double seconds_left,
                      int width) {
  const double share = total > 0 ? static_cast<double>(done) / total : 0;
  std::string line = fmt::format("{}  {}  {} of {} rows", suite, bar(share), done, total);
  if (seconds_left >= 0) line += fmt::format(", about {} left", time_text(seconds_left));
  return report::fit_columns(line, static_cast<size_t>(std::max(width, 1)));
}

std::string row_bar(const RowStatus& status, int width) {
  std::string line = fmt::format("{}  ", status.id);
  if (!status.live) {
    line += status.doing;
  } else {
    const report::LiveState& live = *status.live;
    const double share =
        live.total_steps > 0 ? static_cast<double>(live.step) / live.total_steps : 0;
    line += fmt::format("{}  {}", bar(share), live.state);
    if (live.total_steps > 0) line += fmt::format("  step {}/{}", live.step, live.total_steps);
    if (live.step > 0 && std::isfinite(live.loss)) line += fmt::format("  loss {:.3f}", live.loss);
    if (live.peak > 0) line += "  " + format_bytes(live.peak);
    if (live.peak > 0 && live.budget > 0) line += fmt::format(" of {}", format_bytes(live.budget));
  }
  return report::fit_columns(report::printable(line), static_cast<size_t>(std::max(width, 1)));
}

Progress::Progress(std::FILE* out, bool is_tty) : out_(out), is_tty_(is_tty) {
  messages_.emplace([this](const std::string& text) { say(text); });
}

Progress::~Progress() {
  messages_.reset();
  erase();
}

void Progress::begin_suite(const std::string& name, int total, size_t id_columns) {
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

void Progress::show(const RowStatus& status) {
  status_ = status;
  draw();
}

void Progress::row_ended(const RowResult& result, bool is_kept) {
  ++ended_;
  if (!is_kept) ++newly_ended_;
  last_ended_ = std::chrono::steady_clock::now();
  status_ = {};
  say(row_line(ended_, total_, id_columns_, result, is_kept));
}

void Progress::say(const std::string& text) {
  const bool was_drawn = is_drawn_;
  erase();
  std::fputs(text.c_str(), out_);
  if (!text.ends_with('\n')) std::fputc('\n', out_);
  std::fflush(out_);
  if (was_drawn) draw();
}

void Progress::end_suite() {
  erase();
  status_ = {};
}

void Progress::draw() {
  if (!is_tty_) return;
  const int width = std::max(columns_of(out_) - 1, 1);
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

}  // namespace snug::experiment
