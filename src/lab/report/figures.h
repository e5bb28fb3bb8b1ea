// Figures of a row as people read them, and which of a row's figures count: one place for all forms
// of the report, for verdicts and for explanations.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lab/result.h"

namespace snug::lab {

// What was measured, where the row ran to its end; else what was planned; null: neither.
const Figures* own_figures(const RowResult& result);
bool is_measured(const RowResult& result);  // own_figures() are

// What has to fit: reserved where it is known, as the allocator keeps more than it hands out.
int64_t needed_bytes(const Figures& figures);

// The share of what there is that is left; empty where it is not known how much there is.
std::optional<double> margin_of(const Figures& figures, int64_t limit_bytes);
// It fits, and less than kClose is left: what is not counted, such as NCCL's buffers, may take
// that.
constexpr double kClose = 0.05;
bool is_close(const Figures& figures, int64_t limit_bytes);
std::string close_text(const Figures& figures, int64_t limit_bytes);  // "close: 0.6 % left", or ""

// The row that this one is held against: its `from`, else the one before it in its group, else of
// those before it with the same model the one with the fewest other options, the nearest of
// several. Null where none of them has figures.
const Row* comparable_row(const LabRun& run, const Row& row);

// Categories in the order of the ledger; others, should there be any, behind them by name.
std::vector<std::string> categories_of(const std::vector<const Figures*>& all);
int64_t bytes_of(const Figures& figures, const std::string& category);
// "optimizer" -> "optimizer states".
std::string category_words(const std::string& category);

// "129.1 GiB", "29.1 GiB", "8.20 GiB": three digits, and a decimal at least.
std::string memory_text(int64_t bytes);
// "16.4 → 8.20 GiB"; a unit each where they are far apart: "4.07 GiB → 4.20 MiB".
std::string memory_pair(int64_t before, int64_t after);
// "0.42 s", "83 ms", "4.5 min".
std::string seconds_text(double seconds);
std::string count_text(double value);              // "9,752", "12.3"
std::string percent_text(double share);            // 0.061 -> "+6.1 %"
std::string program_words(const std::string& id);  // "litgpt" -> "LitGPT"
// "a, b and c", with `last` between the last two.
std::string joined(const std::vector<std::string>& parts, const char* last = " and ");
std::string first_line(const std::string& text);

// Of none: 0.
double largest(const std::vector<double>& values);

}  // namespace snug::lab
