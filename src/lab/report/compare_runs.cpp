// SPDX-License-Identifier: Apache-2.0
#include "lab/report/reports.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/text.h"
#include "lab/report/figures.h"
#include "report/tables.h"
#include "report/text_width.h"

namespace snug::lab {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using report::RunRecord;

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

// Paths for output do not affect training.
constexpr const char* kPlaces[] = {"out_dir", "resume", "verbose", "num_threads", "log_memory"};

double first_loss(const RunRecord& record) {
  return record.steps.empty() ? kNone : record.steps.front().loss;
}

// The mean of the last tenth: single steps differ by their samples.
double last_loss(const RunRecord& record) {
  if (record.steps.empty()) return kNone;
  const int64_t wanted = std::max<int64_t>(1, report::num_steps(record.steps) / 10);
  double sum = 0;
  int64_t count = 0;
  for (auto step = record.steps.rbegin(); count < wanted && step != record.steps.rend(); ++step) {
    sum += step->loss * static_cast<double>(step->count);
    count += step->count;
  }
  return sum / static_cast<double>(count);
}

// A run that ended early has none of what is never zero.
double known(double value) { return value > 0 ? value : kNone; }

double bytes(int64_t value) { return known(static_cast<double>(value)); }

double optional(const std::optional<double>& value) { return value.value_or(kNone); }

enum class Unit { Count, Loss, Seconds, Rate, Share, Bytes };

struct Figure {
  std::string key, title;
  Unit unit;
  std::function<double(const RunRecord&)> of;
};

std::vector<Figure> figures_of(const std::vector<NamedRun>& runs) {
  std::vector<Figure> figures = {
      {"parameters", "parameters", Unit::Count,
       [](const RunRecord& r) { return known(static_cast<double>(r.model.parameters)); }},
      {"trainable", "trained", Unit::Count,
       [](const RunRecord& r) { return known(static_cast<double>(r.model.trainable)); }},
      {"processes", "processes", Unit::Count,
       [](const RunRecord& r) { return static_cast<double>(r.world_size); }},
      {"steps", "steps", Unit::Count,
       [](const RunRecord& r) { return static_cast<double>(report::num_steps(r.steps)); }},
      {"tokens", "tokens read", Unit::Count,
       [](const RunRecord& r) {
         return static_cast<double>(report::summary_of(r).tokens_with_prompt);
       }},
      {"loss_first", "loss, first step", Unit::Loss, first_loss},
      {"loss_last", "loss, last tenth", Unit::Loss, last_loss},
      {"validation_first", "validation before", Unit::Loss,
       [](const RunRecord& r) { return optional(report::summary_of(r).val_loss_before); }},
      {"validation_last", "validation after", Unit::Loss,
       [](const RunRecord& r) { return optional(report::summary_of(r).val_loss_after); }},
      {"step_seconds", "median step", Unit::Seconds,
       [](const RunRecord& r) { return report::statistics_of(r.steps).median_seconds; }},
      {"step_seconds_mean", "mean step", Unit::Seconds,
       [](const RunRecord& r) { return report::statistics_of(r.steps).mean_seconds; }},
      {"utilization", "utilization", Unit::Share,
       [](const RunRecord& r) { return report::statistics_of(r.steps).mean_utilization; }},
      {"utilization_deviation", "  plus-minus", Unit::Share,
       [](const RunRecord& r) { return report::statistics_of(r.steps).utilization_deviation; }},
      {"tokens_per_second", "tokens/s", Unit::Rate,
       [](const RunRecord& r) { return known(report::summary_of(r).tokens_per_second); }},
      {"seconds_total", "total seconds", Unit::Seconds,
       [](const RunRecord& r) { return known(r.seconds_total); }},
      {"peak_allocated", "peak", Unit::Bytes,
       [](const RunRecord& r) { return bytes(report::summary_of(r).memory_bytes); }},
      {"peak_planned", "  as planned", Unit::Bytes,
       [](const RunRecord& r) {
         return r.memory.predicted ? bytes(report::summary_of(r).predicted_bytes) : kNone;
       }},
  };
  std::set<std::string> categories;
  for (const NamedRun& run : runs)
    for (const auto& [category, ignored] : run.record.memory.measured.by_category)
      categories.insert(category);
  for (const std::string& category : categories)
    figures.push_back(
        {"peak_" + category, "  " + category, Unit::Bytes, [category](const RunRecord& r) {
           const auto& held = r.memory.measured.by_category;
           const auto at = held.find(category);
           return at == held.end() ? kNone : bytes(at->second);
         }});
  figures.push_back({"peak_reserved", "reserved", Unit::Bytes,
                     [](const RunRecord& r) { return bytes(r.memory.measured.peak_reserved); }});
  figures.push_back({"num_alloc_retries", "allocator retries", Unit::Count, [](const RunRecord& r) {
                       return bytes(report::summary_of(r).num_alloc_retries);  // not known of a CPU
                     }});
  figures.push_back({"peak_host", "on the host", Unit::Bytes,
                     [](const RunRecord& r) { return bytes(r.memory.measured.peak_host); }});
  return figures;
}

std::string text_of(double value, Unit unit) {
  if (!std::isfinite(value)) return "–";
  switch (unit) {
    case Unit::Count:
      return with_commas(static_cast<long long>(value));
    case Unit::Loss:
      return fmt::format("{:.4f}", value);
    case Unit::Seconds:
      return value < 10 ? fmt::format("{:.1f} ms", 1000 * value) : seconds_text(value);
    case Unit::Rate:
      return fmt::format("{:.1f}", value);
    case Unit::Share:
      return fmt::format("{:.1f} %", 100 * value);
    case Unit::Bytes:
      return memory_text(static_cast<int64_t>(value));
  }
  return "";
}

// A figure and its change, which is not shown for counts, losses and shares.
std::string cell(double value, double first, Unit unit, bool is_first) {
  const std::string text = text_of(value, unit);
  const bool changes = unit != Unit::Count && unit != Unit::Loss && unit != Unit::Share &&
                       !is_first && std::isfinite(value) && std::isfinite(first) && first > 0 &&
                       value != first;
  return changes ? fmt::format("{} ({:+.0f} %)", text, 100 * (value / first - 1)) : text;
}

void flatten(const json& value, const std::string& key, std::map<std::string, std::string>& out) {
  if (!value.is_object()) {
    out[key] = value.is_string() ? value.get<std::string>() : value.dump();
    return;
  }
  for (const auto& [name, child] : value.items())
    flatten(child, key.empty() ? name : key + "." + name, out);
}

// By key what each run has, where they do not all have the same.
std::map<std::string, std::vector<std::string>> recipe_differences(
    const std::vector<NamedRun>& runs) {
  std::vector<std::map<std::string, std::string>> recipes(runs.size());
  std::set<std::string> keys;
  for (size_t i = 0; i < runs.size(); ++i) {
    flatten(runs[i].record.recipe, "", recipes[i]);
    for (const auto& [key, ignored] : recipes[i]) keys.insert(key);
  }
  for (const char* place : kPlaces) keys.erase(place);
  std::map<std::string, std::vector<std::string>> differences;
  for (const std::string& key : keys) {
    std::vector<std::string> values;
    for (const auto& recipe : recipes) {
      const auto at = recipe.find(key);
      values.push_back(at == recipe.end() ? "–" : at->second);
    }
    if (std::ranges::any_of(values, [&](const std::string& v) { return v != values.front(); }))
      differences[key] = std::move(values);
  }
  return differences;
}

std::vector<report::Table::Column> columns_of(const std::vector<NamedRun>& runs) {
  std::vector<report::Table::Column> columns = {{"", report::Align::Left}};
  for (const NamedRun& run : runs) columns.push_back({printable(run.name)});
  return columns;
}

constexpr size_t kWidestCell = 48;

std::string shown(const std::string& text) {
  return report::fit_columns(printable(text), kWidestCell);
}

}  // namespace

fs::path run_record_in(const fs::path& path) {
  std::error_code ignored;
  if (fs::is_regular_file(path / "run.json", ignored)) return path / "run.json";
  return path.filename() == "run.json" && fs::is_regular_file(path, ignored) ? path : fs::path();
}

std::string compare_runs_text(const std::vector<NamedRun>& runs) {
  report::Table table(columns_of(runs));
  const auto add = [&](const char* title, const auto& of) {
    std::vector<std::string> cells = {title};
    for (const NamedRun& run : runs) cells.push_back(shown(of(run.record)));
    table.add_row(std::move(cells));
  };
  add("outcome", [](const RunRecord& r) { return r.outcome; });
  add("model", [](const RunRecord& r) { return fs::path(r.model.id).filename().string(); });
  add("device", [](const RunRecord& r) { return r.device.name; });
  for (const Figure& figure : figures_of(runs)) {
    std::vector<double> values;
    for (const NamedRun& run : runs) values.push_back(figure.of(run.record));
    if (std::ranges::none_of(values, [](double value) { return std::isfinite(value); })) continue;
    std::vector<std::string> cells = {figure.title};
    for (size_t i = 0; i < values.size(); ++i)
      cells.push_back(cell(values[i], values.front(), figure.unit, i == 0));
    table.add_row(std::move(cells));
  }
  std::string out = table.render();
  const auto differences = recipe_differences(runs);
  if (differences.empty()) return out + "\nThe recipes are the same.\n";
  report::Table recipes(columns_of(runs));
  for (const auto& [key, values] : differences) {
    std::vector<std::string> cells = {shown(key)};
    for (const std::string& value : values) cells.push_back(shown(value));
    recipes.add_row(std::move(cells));
  }
  return out + "\nDifferences between the recipes\n\n" + recipes.render();
}

std::string compare_runs_json(const std::vector<NamedRun>& runs) {
  json list = json::array();
  for (const NamedRun& run : runs) {
    json one{{"run", run.name},
             {"outcome", run.record.outcome},
             {"model", run.record.model.id},
             {"device", run.record.device.name}};
    for (const Figure& figure : figures_of(runs)) {
      const double value = figure.of(run.record);
      one[figure.key] = std::isfinite(value) ? json(value) : json();
    }
    list.push_back(std::move(one));
  }
  const json out{
      {"schema", 1}, {"runs", std::move(list)}, {"recipe_differences", recipe_differences(runs)}};
  return out.dump(1, ' ', false, json::error_handler_t::replace) + "\n";
}

}  // namespace snug::lab
