// SPDX-License-Identifier: Apache-2.0
#include "lab/report/figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <map>

#include "base/bytes.h"
#include "base/text.h"
#include "report/close.h"

namespace snug::lab {
namespace {

struct CategoryName {
  const char* id;
  const char* words;
};

constexpr std::array kCategories = {CategoryName{"parameters", "weights"},
                                    CategoryName{"gradients", "gradients"},
                                    CategoryName{"optimizer", "optimizer states"},
                                    CategoryName{"activations", "activations"},
                                    CategoryName{"workspace", "workspace"},
                                    CategoryName{"communication", "communication buffers"},
                                    CategoryName{"data", "batches"}};

struct MemoryUnit {
  const char* name;
  double bytes;
};

MemoryUnit unit_of(int64_t bytes) {
  const int64_t size = std::abs(bytes);
  if (size >= kGiB) return {"GiB", static_cast<double>(kGiB)};
  if (size >= kMiB) return {"MiB", static_cast<double>(kMiB)};
  if (size >= kKiB) return {"KiB", static_cast<double>(kKiB)};
  return {"bytes", 1};
}

// Three digits, and no more than the unit can have.
std::string digits(double value, bool is_whole) {
  if (is_whole || value == 0) return fmt::format("{:.0f}", value);
  const double size = std::abs(value);
  return size >= 99.95   ? with_commas(std::llround(value))
         : size >= 9.995 ? fmt::format("{:.1f}", value)
                         : fmt::format("{:.2f}", value);
}

// Hundreds keep a decimal, so that differences of displayed figures agree.
std::string in_unit(int64_t bytes, const MemoryUnit& unit) {
  const double value = static_cast<double>(bytes) / unit.bytes;
  if (unit.bytes > 1 && std::abs(value) >= 99.95) return fmt::format("{:.1f}", value);
  return digits(value, unit.bytes == 1);
}

// How many options the one has that the other has not, or has otherwise; the last value counts.
size_t options_apart(const Settings& one, const Settings& other) {
  std::map<std::string, std::string> left, right;
  for (const auto& [key, value] : one) left[key] = value;
  for (const auto& [key, value] : other) right[key] = value;
  size_t apart = 0;
  for (const auto& [key, value] : left) {
    const auto found = right.find(key);
    if (found == right.end() || found->second != value) ++apart;
  }
  for (const auto& [key, value] : right)
    if (!left.contains(key)) ++apart;
  return apart;
}

bool has_figures(const LabRun& run, const std::string& id) {
  const RowResult* result = run.find(id);
  return result != nullptr && own_figures(*result) != nullptr;
}

}  // namespace

bool is_measured(const RowResult& result) {
  return result.measured && result.outcome == Outcome::Ok;
}

const Figures* own_figures(const RowResult& result) {
  if (is_measured(result)) return &*result.measured;
  if (result.predicted) return &*result.predicted;
  return result.measured ? &*result.measured : nullptr;
}

int64_t needed_bytes(const Figures& figures) {
  return std::max(figures.peak_reserved, figures.peak_allocated);
}

std::string use_text(double share, double spread) {
  if (share <= 0) return "";
  const std::string around = spread > 0 ? fmt::format(" ± {:.1f}", 100 * spread) : "";
  return fmt::format("{:.1f}{} %", 100 * share, around);
}

std::string retries_text(const Figures& figures) {
  return figures.num_alloc_retries > 0 ? fmt::format("{:.2g}", figures.num_alloc_retries) : "";
}

std::optional<double> margin_of(const Figures& figures, int64_t limit_bytes) {
  if (limit_bytes <= 0) return std::nullopt;
  return 1 - static_cast<double>(needed_bytes(figures)) / static_cast<double>(limit_bytes);
}

bool is_close(const Figures& figures, int64_t limit_bytes) {
  return !close_text(figures, limit_bytes).empty();
}

std::string close_text(const Figures& figures, int64_t limit_bytes) {
  return figures.fits ? report::close_text(needed_bytes(figures), limit_bytes) : "";
}

const Row* comparable_row(const LabRun& run, const Row& row) {
  if (!row.from.empty()) return has_figures(run, row.from) ? run.find_row(row.from) : nullptr;
  const Row* nearest = nullptr;
  size_t least = 0;
  for (const Row& other : run.rows) {
    if (other.id == row.id) break;
    const bool is_kin = row.group.empty() ? other.model == row.model && other.group.empty()
                                          : other.group == row.group;
    if (!is_kin || !has_figures(run, other.id)) continue;
    const size_t apart = row.group.empty() ? options_apart(other.options, row.options) : 0;
    if (nearest != nullptr && apart > least) continue;
    nearest = &other;
    least = apart;
  }
  return nearest;
}

std::vector<std::string> categories_of(const std::vector<const Figures*>& all) {
  const auto has = [&](const std::string& category) {
    return std::any_of(all.begin(), all.end(), [&](const Figures* figures) {
      return figures != nullptr && bytes_of(*figures, category) > 0;
    });
  };
  std::vector<std::string> out;
  for (const CategoryName& category : kCategories)
    if (has(category.id)) out.emplace_back(category.id);
  for (const Figures* figures : all) {
    if (figures == nullptr) continue;
    for (const auto& [name, bytes] : figures->by_category)
      if (bytes > 0 && std::find(out.begin(), out.end(), name) == out.end()) out.push_back(name);
  }
  return out;
}

int64_t bytes_of(const Figures& figures, const std::string& category) {
  const auto found = figures.by_category.find(category);
  return found == figures.by_category.end() ? 0 : found->second;
}

std::string category_words(const std::string& category) {
  for (const CategoryName& known : kCategories)
    if (known.id == category) return known.words;
  return category;
}

std::string memory_text(int64_t bytes) {
  const MemoryUnit unit = unit_of(bytes);
  return in_unit(bytes, unit) + " " + unit.name;
}

std::string memory_pair(int64_t before, int64_t after) {
  constexpr int64_t kFarApart = 100;  // a third digit would be lost
  if (before > 0 && after > 0 && std::max(before, after) / std::min(before, after) >= kFarApart)
    return memory_text(before) + " → " + memory_text(after);
  const MemoryUnit unit = unit_of(std::max(before, after));
  return fmt::format("{} → {} {}", in_unit(before, unit), in_unit(after, unit), unit.name);
}

std::string seconds_text(double seconds) {
  if (!std::isfinite(seconds)) return "–";
  if (seconds < 0.0995) return fmt::format("{:.3g} ms", seconds * 1000);
  if (seconds < 120) return digits(seconds, false) + " s";
  return seconds < 7200 ? fmt::format("{:.1f} min", seconds / 60)
                        : fmt::format("{:.1f} h", seconds / 3600);
}

std::string count_text(double value) {
  if (!std::isfinite(value) || std::abs(value) > 1e15) return "–";
  return digits(value, false);
}

std::string percent_text(double share) {
  if (!std::isfinite(share)) return "–";
  const double percent = 100 * share;
  if (std::abs(percent) < 0.05) return "0.0 %";
  return fmt::format("{}{:.{}f} %", percent < 0 ? "−" : "+", std::abs(percent),
                     std::abs(percent) < 99.95 ? 1 : 0);
}

std::string program_words(const std::string& id) {
  if (id == "litgpt") return "LitGPT";
  if (id == "lightning") return "Lightning";
  return id;
}

std::string joined(const std::vector<std::string>& parts, const char* last) {
  std::string out;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) out += i + 1 == parts.size() ? last : ", ";
    out += parts[i];
  }
  return out;
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

double largest(const std::vector<double>& values) {
  return values.empty() ? 0 : *std::max_element(values.begin(), values.end());
}

}  // namespace snug::lab
