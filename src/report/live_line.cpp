// SPDX-License-Identifier: Apache-2.0
#include "report/live_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/terminal.h"
#include "base/text.h"
#include "report/text_width.h"

namespace snug::report {
namespace {

constexpr double kRedrawSeconds = 0.1;
constexpr double kPlainSeconds = 10;
constexpr int64_t kFewSteps = 200;
constexpr int64_t kFirstLines = 20;
constexpr int kMaxBarColumns = 28;
constexpr int kMinBarColumns = 6;
constexpr int kMinBarWithPercent = 18;

// With autowrap off a line that turns out too long, because the window has just shrunk, is cut at
// the edge instead of leaving a second line behind. On again within the same write.
constexpr std::string_view kBeginLine = "\r\x1b[?7l";
constexpr std::string_view kEndLine = "\x1b[K\x1b[?7h";

std::string rate_text(double tokens_per_second) {
  if (!std::isfinite(tokens_per_second) || tokens_per_second < 0) return "- tok/s";
  if (tokens_per_second < 10) return fmt::format("{:.1f} tok/s", tokens_per_second);
  return with_commas(std::llround(std::min(tokens_per_second, 1e15))) + " tok/s";
}

std::string memory_text(const StepStatus& status) {
  if (status.budget_bytes <= 0) return format_bytes(status.memory_bytes);
  const bool is_small = status.budget_bytes < kGiB;
  const int64_t unit = is_small ? kMiB : kGiB;
  // A small model's number would be zero.
  if (10 * status.memory_bytes < unit)
    return format_bytes(status.memory_bytes) + "/" + format_bytes(status.budget_bytes);
  return fmt::format("{:.2f}/{:.2f} {}",
                     static_cast<double>(status.memory_bytes) / static_cast<double>(unit),
                     static_cast<double>(status.budget_bytes) / static_cast<double>(unit),
                     is_small ? "MiB" : "GiB");
}

std::string retries_text(const StepStatus& status) {
  return fmt::format("{} allocator retr{}", with_commas(status.num_alloc_retries),
                     status.num_alloc_retries == 1 ? "y" : "ies");
}

constexpr std::string_view kPlain = "", kBold = "1", kGreen = "32", kYellow = "33", kRed = "31",
                           kDim = "2";

std::string paint(std::string_view text, std::string_view style, Colours colours) {
  if (colours == Colours::Off || style.empty()) return std::string(text);
  return fmt::format("\x1b[{}m{}\x1b[0m", style, text);
}

std::string_view memory_style(const StepStatus& status) {
  if (status.budget_bytes <= 0) return kPlain;
  const double share = static_cast<double>(status.memory_bytes) / status.budget_bytes;
  return share > 0.95 ? kRed : share > 0.85 ? kYellow : kPlain;
}

double done_share(const StepStatus& status) {
  if (status.total_steps <= 0) return 0;
  return std::clamp(static_cast<double>(status.step) / status.total_steps, 0.0, 1.0);
}

std::string bar(double share, int columns, Colours colours) {
  const int full = static_cast<int>(share * columns);
  std::string done, rest;
  for (int i = 0; i < full; ++i) done += "━";
  for (int i = full; i < columns; ++i) rest += colours == Colours::On ? "━" : "─";
  return paint(done, kGreen, colours) + paint(rest, kDim, colours);
}

struct Part {
  std::string text;
  std::string_view style;
  int rank;  // 0 stays longest
  bool shown = false;
};

std::vector<Part> parts_of(const StepStatus& status) {
  std::vector<Part> parts;
  parts.push_back({status.total_steps > 0
                       ? fmt::format("step {}/{}", status.step, status.total_steps)
                       : fmt::format("step {}", status.step),
                   kPlain, 0});
  parts.push_back({fmt::format("loss {:.3f}", status.loss), kBold, 1});
  if (status.val_loss) parts.push_back({fmt::format("val {:.3f}", *status.val_loss), kPlain, 6});
  parts.push_back({rate_text(status.tokens_per_second), kPlain, 3});
  if (status.share_of_peak > 0)
    parts.push_back({fmt::format("MFU {:.0f}%", 100 * status.share_of_peak), kPlain, 5});
  if (status.memory_bytes > 0)
    parts.push_back({"memory " + memory_text(status), memory_style(status), 4});
  if (status.accuracy)
    parts.push_back({fmt::format("accuracy {:.0f}%", 100 * *status.accuracy), kPlain, 2});
  if (status.sft_loss) parts.push_back({fmt::format("sft {:.3f}", *status.sft_loss), kPlain, 5});
  if (status.margin) parts.push_back({fmt::format("margin {:.3f}", *status.margin), kPlain, 5});
  if (status.expert_load > 0)
    parts.push_back({fmt::format("busiest expert {:.1f}x", status.expert_load), kPlain, 6});
  if (status.num_alloc_retries > 0) parts.push_back({retries_text(status), kYellow, 4});
  if (status.seconds_left) parts.push_back({clock_text(*status.seconds_left) + " left", kPlain, 2});
  return parts;
}

constexpr int kGapColumns = 2;

// Marks what fits, the important first; returns the columns used.
int choose(std::vector<Part>& parts, int width) {
  int used = 0;
  for (int rank = 0; rank <= 6; ++rank) {
    for (Part& part : parts) {
      if (part.rank != rank) continue;
      const int columns = static_cast<int>(display_width(part.text)) + (used > 0 ? kGapColumns : 0);
      if (used + columns > width) return used;
      part.shown = true;
      used += columns;
    }
  }
  return used;
}

}  // namespace

std::string litgpt_line(const StepStatus& status) {
  const std::string val = status.val_loss ? fmt::format("{:.3f}", *status.val_loss) : "n/a";
  return fmt::format(
      "Epoch {} | iter {} step {} | loss train: {:.3f}, val: {} | iter time: {:.2f} ms{}",
      status.epoch, status.iter, status.step, status.loss, val, 1000 * status.iter_seconds,
      status.is_step ? " (step)" : "");
}

std::string render_live_line(const StepStatus& status, int width, Colours colours) {
  std::vector<Part> parts = parts_of(status);
  const int used = choose(parts, width);
  if (used == 0) return fit_columns(parts[0].text, static_cast<size_t>(std::max(width, 0)));
  const int room = std::min(width - used - kGapColumns, kMaxBarColumns);
  std::string percent = fmt::format(" {:.0f}%", std::floor(100 * done_share(status)));
  if (room < kMinBarWithPercent) percent.clear();
  const int bar_columns = room - static_cast<int>(percent.size());
  std::string line;
  for (const Part& part : parts) {
    if (!part.shown) continue;
    if (!line.empty()) line += "  ";
    line += paint(part.text, part.style, colours);
    if (part.rank == 0 && status.total_steps > 0 && bar_columns >= kMinBarColumns)
      line += "  " + bar(done_share(status), bar_columns, colours) + percent;
  }
  return line;
}

LiveLine::LiveLine(std::FILE* out, bool is_tty, LiveLineOptions options)
    : out_(out), is_tty_(is_tty), options_(std::move(options)) {
  if (!options_.clock) options_.clock = monotonic_seconds;
  // Asked anew for each draw, which is cheaper than it sounds and needs no signal handler.
  if (!options_.terminal_width)
    options_.terminal_width = [out] { return terminal_size(::fileno(out)).columns; };
  if (!options_.colours) options_.colours = is_tty && !colours_are_refused();
}

LiveLine::~LiveLine() { finish(); }

void LiveLine::update(const StepStatus& status) {
  if (is_tty_ && !messages_) messages_.emplace([this](const std::string& text) { print(text); });
  const std::lock_guard lock(mutex_);
  const double now = options_.clock();
  if (!status_) {
    first_time_ = now;
    first_step_ = status.step;
  }
  status_ = status;
  drawn_ = drawn_plain_ = false;
  const int64_t steps = status.step - first_step_;
  if (!status_->seconds_left && steps > 0 && status.total_steps >= status.step)
    status_->seconds_left = (now - first_time_) / steps * (status.total_steps - status.step);
  const bool few = status.total_steps > 0 && status.total_steps <= kFewSteps;
  const bool is_due = few || lines_ < kFirstLines || now - last_plain_ >= kPlainSeconds;
  if (is_due && status.step % options_.interval == 0) {
    draw_plain();
    last_plain_ = now;
  }
  if (is_tty_ && now - last_draw_ >= kRedrawSeconds) {
    draw();
    last_draw_ = now;
  }
}

void LiveLine::validated(double loss) {
  const std::lock_guard lock(mutex_);
  if (status_) status_->val_loss = loss;
}

void LiveLine::print(std::string_view text) {
  const std::lock_guard lock(mutex_);
  std::string out = open_ ? "\r\x1b[K" : "";
  out += text;
  if (!text.ends_with('\n')) out += '\n';
  open_ = false;
  write(out);
  copy(text);
  if (is_tty_ && status_) draw();
}

void LiveLine::finish() {
  messages_.reset();
  const std::lock_guard lock(mutex_);
  if (status_ && !drawn_plain_) draw_plain();
  if (status_ && is_tty_ && !drawn_) draw();
  if (open_) write("\n");
  open_ = false;
  status_.reset();
}

void LiveLine::draw() {
  // One column stays free: in the last one some terminals wrap at once.
  const int width = std::max(options_.terminal_width() - 1, 1);
  const Colours colours = *options_.colours ? Colours::On : Colours::Off;
  write(fmt::format("{}{}{}", kBeginLine, render_live_line(*status_, width, colours), kEndLine));
  open_ = drawn_ = true;
}

void LiveLine::copy(std::string_view text) const {
  if (options_.copy) options_.copy(text);
}

// In a terminal for the copy alone.
void LiveLine::draw_plain() {
  std::string line =
      fmt::format("{} | {}", litgpt_line(*status_), rate_text(status_->tokens_per_second));
  if (status_->accuracy) line += fmt::format(" | accuracy {:.2f}", *status_->accuracy);
  if (status_->margin)
    line += fmt::format("{} margin {:.3f}", status_->accuracy ? "," : " |", *status_->margin);
  if (status_->sft_loss) line += fmt::format(" | sft_loss {:.3f}", *status_->sft_loss);
  if (status_->memory_bytes > 0) line += " | " + memory_text(*status_);
  if (status_->num_alloc_retries > 0) line += " | " + retries_text(*status_);
  if (status_->seconds_left) line += " | " + clock_text(*status_->seconds_left) + " left";
  if (!is_tty_) write(line + "\n");
  copy(line);
  drawn_plain_ = true;
  ++lines_;
}

// One call, one flush: the terminal never shows a half-drawn line.
void LiveLine::write(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), out_);
  std::fflush(out_);
}

}  // namespace snug::report
