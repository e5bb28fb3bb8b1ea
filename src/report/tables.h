// Text that a run prints: aligned tables, the four-phase memory table, bars by category and the
// closing summary.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "report/run_record.h"
#include "report/text_width.h"

namespace snug::report {

enum class Align { Left, Right };

class Table {
 public:
  struct Column {
    std::string title;
    Align align = Align::Right;
    bool spare = false;  // left out where the table is wider than the terminal
  };
  explicit Table(std::vector<Column> columns);

  // Missing cells at the end are left blank.
  void add_row(std::vector<std::string> cells);
  // Title row, rule, rows; ends in a newline. Where it would be wider than so many columns (0: any
  // width), spare columns are left out from the right, and texts in the last column are wrapped.
  std::string render(size_t columns = shown_columns()) const;
  std::string html() const;  // a <table>

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

// Records count steps from 0, progress and losses from 1, and so does what is shown.
inline int64_t shown_step(const PhaseRecord& phase) { return phase.step + 1; }

// "Memory   step 1, micro-batch 2, after_fwd: Params 0.25, …, Peak 1.14, Reserved 1.30 GiB".
std::string memory_line(const PhaseRecord& phase);

// One row per phase: Params, Grads, Optim, Acts, Work, (Comm, Data, Optim host if any is not zero,)
// Allocated, Peak, Reserved, all in GiB or all in MiB. With a column for micro-batches where they
// were told apart.
std::string memory_table(std::span<const PhaseRecord> phases);

// What was live when an allocation was refused, as a row for the table of phases, behind them.
PhaseRecord refusal_row(const RunRecord& record);

// The phases of the first steps and the last, since a long run has too many to read, and the row of
// a refusal by the device or the budget.
std::vector<PhaseRecord> shown_phases(const RunRecord& record);

struct BarOptions {
  int64_t budget_bytes = 0;  // drawn as the full width when set
  int width = 80;
  bool colours = false;
};

// One bar per category, largest first, with bytes and share of the sum.
std::string memory_bars(const std::map<std::string, int64_t>& by_category,
                        const BarOptions& options = {});

// The upper one of the two in the middle of an even number; `values` has at least one.
double median(std::vector<double> values);

// Steps that the records stand for.
int64_t num_steps(std::span<const StepRecord> steps);

// Leaves out the first tenth, at least one step where there are several and at most ten. Of a run
// whose older records stand for several steps each, all but mean_seconds are of the single ones.
StepStatistics statistics_of(std::span<const StepRecord> steps);

// "78.1 ± 3.2 %": mean and standard deviation; empty if not known.
std::string utilization_text(const StepStatistics& steps);

// "Epoch 1: mean training loss 2.3412 over 16 steps".
std::string epoch_text(const EpochRecord& epoch);
std::string epoch_table(std::span<const EpochRecord> epochs);

struct RunSummary {
  int64_t input_tokens = 0;        // of the samples' own text
  int64_t tokens_with_prompt = 0;  // plus the prompt template's
  int64_t padded_tokens = 0;       // plus padding
  double training_seconds = 0;     // of the steps
  double fit_seconds = 0;          // with validations and checkpoints; 0: not known
  double tokens_per_second = 0;    // without padding
  double share_of_peak = 0;        // 0: not known
  StepStatistics steps;
  std::optional<int> rank;        // of several, the one that took most memory; the next are its own
  int64_t memory_bytes = 0;       // peak allocated
  int64_t budget_bytes = 0;       // 0: no budget
  int64_t predicted_bytes = 0;    // 0: not planned
  int64_t num_alloc_retries = 0;  // of the rank that had the most
  StartupRecord startup;
  std::vector<std::string> notes;  // the record's
  std::optional<double> val_loss_before, val_loss_after;
  std::optional<double> accuracy_before, accuracy_after;  // of held-out pairs or texts, 0..1
};

RunSummary summary_of(const RunRecord& record);

// The sources of a mix: what they have, what an epoch has of it, and where there is any what was
// read and the last loss on what each holds out.
std::string source_table(const RunRecord& record);

// A line for each process: its peak and the planned one.
std::string rank_table(const std::vector<RankMemoryRecord>& ranks);

// The block at the end of a run, in LitGPT's wording.
std::string summary_block(const RunSummary& summary);

}  // namespace snug::report
