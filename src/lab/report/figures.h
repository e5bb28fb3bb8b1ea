// The figures of a row that count, and their text: shared by all forms of the report, verdicts and
// explanations.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lab/result.h"

namespace snug::lab {

// The measured figures if the row ran to its end, else the planned ones; null: neither.
const Figures* own_figures(const RowResult& result);
bool is_measured(const RowResult& result);  // own_figures() are

// The memory that has to fit: reserved if it is known, since the allocator keeps more than it hands
// out; else allocated.
int64_t needed_bytes(const Figures& figures);

// "2", "0.4": of the allocator, in a step; empty: none.
std::string retries_text(const Figures& figures);
// "71.9 ± 3.3 %", without a spread "71.9 %"; empty: not known.
std::string use_text(double share, double spread);

// The free share of the limit; empty if the limit is not known.
std::optional<double> margin_of(const Figures& figures, int64_t limit_bytes);
// Whether it fits with less than report::kClose left.
bool is_close(const Figures& figures, int64_t limit_bytes);
std::string close_text(const Figures& figures, int64_t limit_bytes);  // "close: 0.6 % left", or ""

// The row to compare with: its `from`, else the previous one in its group, else the earlier row
// with the same model that differs in the fewest options (the nearest of several). Null if it has
// no figures.
const Row* comparable_row(const LabRun& run, const Row& row);

// Categories in the order of the ledger, then any others by name.
std::vector<std::string> categories_of(const std::vector<const Figures*>& all);
int64_t bytes_of(const Figures& figures, const std::string& category);
// "optimizer" -> "optimizer states".
std::string category_words(const std::string& category);

// "129.1 GiB", "29.1 GiB", "8.20 GiB": three digits, and a decimal at least.
std::string memory_text(int64_t bytes);
// "16.4 → 8.20 GiB"; with two units if they are far apart: "4.07 GiB → 4.20 MiB".
std::string memory_pair(int64_t before, int64_t after);
// "0.42 s", "83 ms", "4.5 min".
std::string seconds_text(double seconds);
std::string count_text(double value);              // "9,752", "12.3"
std::string percent_text(double share);            // 0.061 -> "+6.1 %"
std::string program_words(const std::string& id);  // "litgpt" -> "LitGPT"
// "a, b and c", with `last` between the last two.
std::string joined(const std::vector<std::string>& parts, const char* last = " and ");
std::string first_line(const std::string& text);

// 0 for an empty vector.
double largest(const std::vector<double>& values);

}  // namespace snug::lab
