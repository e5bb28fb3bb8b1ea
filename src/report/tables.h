// What a run prints for people: aligned tables, the four-phase memory table, bars by category and
// the closing summary. Everything returns text; nothing here prints.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "report/run_record.h"

namespace snug::report {

enum class Align { Left, Right };

class Table {
 public:
  struct Column {
    std::string title;
    Align align = Align::Right;
  };
  explicit Table(std::vector<Column> columns);

  // As many cells as columns; a missing one at the end is left blank.
  void add_row(std::vector<std::string> cells);
  // Title row, rule, rows; ends in a newline.
  std::string render() const;
  // As a table of HTML.
  std::string html() const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

// One row a phase: Params, Grads, Optim, Acts, Work, (Comm, Data, Optim host where any is not zero)
// Allocated, Peak, Reserved, all in one unit, GiB or MiB.
std::string memory_table(std::span<const PhaseRecord> phases);

struct BarOptions {
  int64_t budget_bytes = 0;  // drawn as the full width when set
  int width = 80;
  bool colours = false;
};

// One bar a category, largest first, with bytes and share of the sum.
std::string memory_bars(const std::map<std::string, int64_t>& by_category,
                        const BarOptions& options = {});

struct RunSummary {
  int64_t input_tokens = 0;        // of the samples' own text
  int64_t tokens_with_prompt = 0;  // and of the prompt template
  int64_t padded_tokens = 0;       // and of padding
  double training_seconds = 0;
  double tokens_per_second = 0;  // real tokens over training time
  double share_of_peak = 0;      // 0: not known
  int64_t memory_bytes = 0;      // peak allocated
  int64_t budget_bytes = 0;      // 0: no budget
  int64_t predicted_bytes = 0;   // 0: not planned
  StartupRecord startup;
  std::vector<std::string> notes;  // the record's
  std::optional<double> val_loss_before, val_loss_after;
};

RunSummary summary_of(const RunRecord& record);

// The block at the end of a run, with LitGPT's words.
std::string summary_block(const RunSummary& summary);

}  // namespace snug::report
