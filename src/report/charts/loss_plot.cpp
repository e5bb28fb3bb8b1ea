// SPDX-License-Identifier: Apache-2.0
#include "report/charts/loss_plot.h"

#include <fmt/format.h>

#include <cmath>
#include <set>

#include "base/bytes.h"
#include "base/files.h"
#include "base/text.h"
#include "report/assets.h"
#include "report/charts/svg_chart.h"
#include "report/tables.h"

namespace snug::report {
namespace {

constexpr size_t kSmoothFrom = 40;     // fewer steps are readable as they are
constexpr size_t kMaxMemorySteps = 4;  // the first ones and the last

struct Category {
  const char* name;
  int64_t PhaseRecord::*bytes;
};

// Device memory only: the optimizer's host part stands in the table.
constexpr Category kCategories[] = {{"parameters", &PhaseRecord::parameters},
                                    {"gradients", &PhaseRecord::gradients},
                                    {"optimizer", &PhaseRecord::optimizer_device},
                                    {"activations", &PhaseRecord::activations},
                                    {"workspace", &PhaseRecord::workspace},
                                    {"communication", &PhaseRecord::communication},
                                    {"data", &PhaseRecord::data}};

// Running mean whose memory grows to a twentieth of the run.
std::vector<std::pair<double, double>> smoothed(
    const std::vector<std::pair<double, double>>& points) {
  std::vector<std::pair<double, double>> out;
  const double keep = 1 - 1 / std::max(5.0, static_cast<double>(points.size()) / 20);
  double mean = 0, weight = 0;
  for (const auto& [step, value] : points) {
    if (!std::isfinite(value)) continue;
    mean = keep * mean + (1 - keep) * value;
    weight = keep * weight + (1 - keep);
    out.emplace_back(step, mean / weight);
  }
  return out;
}

// One line, or for a longer run the raw values faintly behind their running mean.
std::vector<Series> with_mean(const std::string& name, const std::string& colour_class,
                              std::vector<std::pair<double, double>> points) {
  if (points.size() < kSmoothFrom) return {{name, colour_class, Series::Look::Line, points}};
  std::vector<Series> out;
  out.push_back({"", colour_class, Series::Look::Faint, points});
  out.push_back({name, colour_class, Series::Look::Line, smoothed(points)});
  return out;
}

std::vector<PhaseRecord> shown_phases(const std::vector<PhaseRecord>& phases) {
  std::set<int64_t> steps;
  for (const PhaseRecord& phase : phases) steps.insert(phase.step);
  while (steps.size() > kMaxMemorySteps) steps.erase(std::prev(steps.end(), 2));
  std::vector<PhaseRecord> out;
  for (const PhaseRecord& phase : phases)
    if (steps.contains(phase.step) && out.size() < 100) out.push_back(phase);
  return out;
}

std::string card(const std::string& value, const std::string& label) {
  return fmt::format("<div class=\"card\"><b>{}</b><span>{}</span></div>", xml_escape(value),
                     xml_escape(label));
}

std::string duration(double seconds) {
  if (seconds < 120) return fmt::format("{:.1f} s", seconds);
  return seconds < 7200 ? fmt::format("{:.1f} min", seconds / 60)
                        : fmt::format("{:.1f} h", seconds / 3600);
}

std::string cards(const RunRecord& record) {
  std::string out = "<div class=\"cards\">";
  if (!record.steps.empty()) {
    const StepRecord& last = record.steps.back();
    out += card(fmt::format("{:.3f}", last.loss), fmt::format("training loss, step {}", last.step));
  }
  if (!record.validation.empty())
    out += card(fmt::format("{:.2f} → {:.2f}", record.validation.front().loss,
                            record.validation.back().loss),
                "validation loss");
  const SpeedRecord& speed = record.speed;
  out += card(with_commas(std::llround(std::min(speed.tokens_per_second, 1e15))),
              speed.share_of_peak > 0
                  ? fmt::format("tokens/s, {:.0f} % of peak", 100 * speed.share_of_peak)
                  : "tokens/s");
  const int64_t peak = record.memory.measured.peak_allocated;
  std::string peak_label = "peak memory";
  if (record.memory.predicted)
    peak_label += ", planned " + format_bytes(record.memory.predicted->peak_allocated);
  else if (record.device.budget_bytes > 0)
    peak_label += " of " + format_bytes(record.device.budget_bytes);
  out += card(format_bytes(peak), peak_label);
  out += card(duration(record.seconds_total), "in all");
  return out + "</div>";
}

std::string heading(const RunRecord& record) {
  const ModelRecord& model = record.model;
  const std::string devices = record.world_size > 1
                                  ? fmt::format("{} × {}", record.world_size, record.device.name)
                                  : record.device.name;
  std::string out = fmt::format(
      "<h1>{} <span class=\"{}\">{}</span></h1><p class=\"mu\">{} parameters, {} trained · {}</p>",
      xml_escape(model.id.empty() ? "run" : model.id), record.outcome == "ok" ? "ok" : "bad",
      xml_escape(record.outcome), with_commas(model.parameters), with_commas(model.trainable),
      xml_escape(devices));
  if (!record.reason.empty())
    out += fmt::format("<pre class=\"bad\">{}</pre>", xml_escape(record.reason));
  for (const std::string& note : record.notes) out += fmt::format("<p>{}</p>", xml_escape(note));
  return out;
}

std::string samples(const RunRecord& record) {
  if (record.samples.empty()) return "";
  std::string out = "<p class=\"mu\">Held-out samples, answered before and after training</p>";
  for (const SampleRecord& sample : record.samples) {
    out += "<pre class=\"text\">";
    const auto line = [&](const char* label, const std::string& value) {
      out += fmt::format("{:<10}{}\n", label, xml_escape(value));
    };
    line("question", sample.question);
    line("expected", sample.expected);
    if (!sample.before.empty()) line("before", sample.before);
    line("after", sample.after);
    out += "</pre>";
  }
  return out;
}

}  // namespace

std::string loss_svg(const RunRecord& record) {
  std::vector<std::pair<double, double>> train, val;
  for (const StepRecord& s : record.steps) train.emplace_back(s.step, s.loss);
  for (const ValidationRecord& v : record.validation) val.emplace_back(v.step, v.loss);
  LineChart chart{"Loss", "per loss token", with_mean("training", "c0", std::move(train)), false};
  if (!val.empty())
    chart.series.push_back({"validation", "c1", Series::Look::Dots, std::move(val)});
  return line_chart(chart);
}

std::string throughput_svg(const RunRecord& record) {
  std::vector<std::pair<double, double>> rate;
  for (const StepRecord& s : record.steps)
    if (s.seconds > 0) rate.emplace_back(s.step, static_cast<double>(s.tokens) / s.seconds);
  return line_chart({"Throughput", "tokens/s", with_mean("", "c3", std::move(rate)), true});
}

std::string memory_svg(const RunRecord& record) {
  StackedChart chart{"Memory by phase", {}, {}, record.device.budget_bytes};
  for (const Category& category : kCategories) chart.categories.emplace_back(category.name);
  for (const PhaseRecord& phase : shown_phases(record.memory.phases)) {
    StackedBar bar{fmt::format("step {}", phase.step), phase.phase, {}, phase.peak};
    for (const Category& category : kCategories) bar.segments.push_back(phase.*category.bytes);
    chart.bars.push_back(std::move(bar));
  }
  return stacked_chart(chart);
}

std::string report_html(const RunRecord& record) {
  std::string out = fmt::format(
      "<!DOCTYPE html>\n<html xmlns=\"http://www.w3.org/1999/xhtml\" lang=\"en\"><head>"
      "<meta charset=\"utf-8\"/><meta name=\"viewport\" content=\"width=device-width\"/>"
      "<title>{}</title><style>{}</style></head><body>",
      xml_escape("snug: " + record.model.id), assets::run_css);
  out += heading(record) + cards(record) + loss_svg(record) + throughput_svg(record) +
         memory_svg(record);
  const std::vector<PhaseRecord> phases = shown_phases(record.memory.phases);
  if (!phases.empty())
    out += fmt::format(
        "<p class=\"mu\">Bars: allocated at the end of the phase; tick: peak so far; dashed line: "
        "budget, if set.</p><pre>{}</pre>",
        xml_escape(memory_table(phases)));
  out += samples(record);
  const std::string recipe =
      record.recipe.dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
  out +=
      fmt::format("<p><code>{}</code></p><details><summary>Recipe</summary><pre>{}</pre></details>",
                  xml_escape(record.command), xml_escape(recipe));
  return out + "</body></html>\n";
}

void write_report_html(const RunRecord& record, const std::filesystem::path& path) {
  write_file_atomically(path, report_html(record));
}

}  // namespace snug::report
