// The progress line of a run. In a terminal one line is rewritten in place; elsewhere (a file, a
// pipe, CI) it prints plain lines in LitGPT's form. The cursor is never hidden and no terminal mode
// outlasts a write, so a run killed at any moment leaves the terminal as it was.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstdio>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "base/log.h"

namespace snug::report {

// The status after one iteration. (What other processes read is LiveState.)
struct StepStatus {
  int64_t epoch = 1;
  int64_t iter = 0;  // micro-batches so far
  int64_t step = 0;  // optimizer steps so far
  int64_t total_steps = 0;
  bool is_step = true;  // the iteration ended an optimizer step
  double loss = 0;
  std::optional<double> val_loss;
  double iter_seconds = 0;
  double tokens_per_second = 0;
  double share_of_peak = 0;    // of the device's FLOP/s, 0..1; 0: peak not known
  int64_t memory_bytes = 0;    // peak allocated
  int64_t reserved_bytes = 0;  // peak reserved
  int64_t budget_bytes = 0;    // 0: no budget
  // The share of pairs, or of texts, that the model gets right; of pairs also by how much the
  // chosen answer is above.
  std::optional<double> accuracy, margin;
  std::optional<double> sft_loss;      // where the loss is another
  double expert_load = 0;              // the busiest expert's, over the mean; 0: no mixture
  int64_t num_alloc_retries = 0;       // of a GPU's allocator so far
  std::optional<double> seconds_left;  // absent: estimated from the steps so far
};

struct LiveLineOptions {
  std::function<double()> clock;        // seconds, monotonic; replaced in tests
  std::function<int()> terminal_width;  // columns; replaced in tests
  std::optional<bool> colours;          // default: on in a terminal unless NO_COLOR is set
  int64_t interval = 1;                 // of plain lines: those of every interval-th step
  // Gets what plain output shows, also in a terminal. It must not log.
  std::function<void(std::string_view)> copy;
};

class LiveLine {
 public:
  LiveLine(std::FILE* out, bool is_tty, LiveLineOptions options = {});
  LiveLine(const LiveLine&) = delete;
  LiveLine& operator=(const LiveLine&) = delete;
  ~LiveLine();

  // In a terminal: redraws at most ten times a second, and until finish() messages of base/log.h
  // are printed above the line. Elsewhere: of every interval-th step prints each of the first 20
  // lines, or all of a run of at most 200 steps, then one every ten seconds.
  void update(const StepStatus& status);

  // Sets the validation loss that the line shows from its next redraw on.
  void validated(double loss);

  // Prints text above the line; a missing newline is added.
  void print(std::string_view text);

  // Leaves the last state on screen (in plain output: prints it unless it was printed) and ends the
  // line. The destructor calls it too.
  void finish();

 private:
  void draw_plain();
  void draw();
  void copy(std::string_view text) const;
  void write(std::string_view text);

  std::FILE* out_;
  bool is_tty_;
  LiveLineOptions options_;
  std::mutex mutex_;
  std::optional<StepStatus> status_;
  bool drawn_ = false;        // status_ is what the screen shows
  bool drawn_plain_ = false;  // status_ is the last plain line
  bool open_ = false;         // the cursor is in an unfinished line
  double last_draw_ = -1e9, last_plain_ = -1e9;
  int64_t lines_ = 0;  // plain ones
  double first_time_ = 0;
  int64_t first_step_ = 0;
  // Set and dropped without mutex_: logging takes the log's own lock first, then mutex_.
  std::optional<LogSinkGuard> messages_;
};

// LitGPT's line: "Epoch 1 | iter 8 step 1 | loss train: 2.310, val: n/a | iter time: 81.20 ms
// (step)".
std::string litgpt_line(const StepStatus& status);

enum class Colours { Off, On };

// The line, at most `width` columns wide; the least important fields are left out first.
std::string render_live_line(const StepStatus& status, int width, Colours colours);

}  // namespace snug::report
