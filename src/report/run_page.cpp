// SPDX-License-Identifier: Apache-2.0
#include "report/run_page.h"

#include <fmt/format.h>

#include <cmath>
#include <set>

#include "base/bytes.h"
#include "base/files.h"
#include "base/text.h"
#include "report/assets.h"
#include "report/charts/svg_chart.h"
#include "report/html_page.h"
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
  return "<div class=\"card\">" + element("b", value) + element("span", label) + "</div>";
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
  std::string out =
      "<h1>" + xml_escape(model.id.empty() ? "run" : model.id) + " " +
      element(record.outcome == "ok" ? "span class=\"ok\"" : "span class=\"bad\"", record.outcome) +
      "</h1>" +
      element("p class=\"mu\"",
              fmt::format("{} parameters, {} trained · {}", with_commas(model.parameters),
                          with_commas(model.trainable), devices));
  if (!record.reason.empty()) out += element("pre class=\"bad\"", record.reason);
  for (const std::string& note : record.notes) out += element("p", note);
  return out;
}

std::string samples(const RunRecord& record) {
  if (record.samples.empty()) return "";
  std::string out = "<p class=\"mu\">Held-out samples, answered before and after training</p>";
  for (const SampleRecord& sample : record.samples) {
    std::string lines;
    const auto line = [&](const char* label, const std::string& value) {
      lines += fmt::format("{:<10}{}\n", label, value);
    };
    line("question", sample.question);
    line("expected", sample.expected);
    if (!sample.before.empty()) line("before", sample.before);
    line("after", sample.after);
    out += element("pre class=\"text\"", lines);
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
  HtmlPage html("snug: " + record.model.id, {assets::run_css});
  html.add(heading(record)).add(cards(record));
  html.add(loss_svg(record)).add(throughput_svg(record)).add(memory_svg(record));
  const std::vector<PhaseRecord> phases = shown_phases(record.memory.phases);
  if (!phases.empty())
    html.add(element("p class=\"mu\"",
                     "Bars: allocated at the end of the phase; tick: peak so far; dashed line: "
                     "budget, if set."))
        .add(element("pre", memory_table(phases)));
  const std::string recipe =
      record.recipe.dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
  return html.add(samples(record))
      .add("<p>" + element("code", record.command) + "</p><details><summary>Recipe</summary>")
      .add(element("pre", recipe) + "</details>")
      .html();
}

void write_report_html(const RunRecord& record, const std::filesystem::path& path) {
  write_file_atomically(path, report_html(record));
}

}  // namespace snug::report
