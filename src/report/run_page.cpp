// SPDX-License-Identifier: Apache-2.0
#include "report/run_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <limits>

#include "base/bytes.h"
#include "base/files.h"
#include "base/text.h"
#include "report/charts/charts.h"
#include "report/html_page.h"
#include "report/tables.h"

namespace snug::report {
namespace {

constexpr size_t kSmoothFrom = 40;  // fewer steps are readable as they are

struct Category {
  const char* name;
  int64_t PhaseRecord::*bytes;
};

// Device memory only; the optimizer's host memory is in the table.
constexpr Category kCategories[] = {{"parameters", &PhaseRecord::parameters},
                                    {"gradients", &PhaseRecord::gradients},
                                    {"optimizer", &PhaseRecord::optimizer_device},
                                    {"activations", &PhaseRecord::activations},
                                    {"workspace", &PhaseRecord::workspace},
                                    {"communication", &PhaseRecord::communication},
                                    {"data", &PhaseRecord::data}};

// Mean of the values around each one, up to a twentieth of the run.
std::vector<std::pair<double, double>> smoothed(
    const std::vector<std::pair<double, double>>& points) {
  std::vector<std::pair<double, double>> finite, out;
  std::ranges::copy_if(points, std::back_inserter(finite),
                       [](const auto& point) { return std::isfinite(point.second); });
  const auto count = std::ssize(finite);
  const int64_t most = std::max<int64_t>(2, std::ssize(points) / 40);
  for (int64_t i = 0; i < count; ++i) {
    // As many on both sides: else it would lag behind where the ends are.
    const int64_t side = std::min({most, i, count - 1 - i});
    double sum = 0;
    for (int64_t k = i - side; k <= i + side; ++k) sum += finite[static_cast<size_t>(k)].second;
    out.emplace_back(finite[static_cast<size_t>(i)].first, sum / static_cast<double>(2 * side + 1));
  }
  return out;
}

// One line, or for a longer run the raw values faintly behind their mean.
std::vector<Series> with_mean(const std::string& name, const std::string& colour_class,
                              std::vector<std::pair<double, double>> points) {
  if (points.size() < kSmoothFrom) return {{name, colour_class, Series::Look::Line, points}};
  std::vector<Series> out;
  out.push_back({"each step", colour_class, Series::Look::Faint, points});
  out.push_back({name.empty() ? "mean" : name + ", mean", colour_class, Series::Look::Line,
                 smoothed(points)});
  return out;
}

bool has_figure(const RunRecord& record, const char* name) {
  return std::ranges::any_of(record.steps,
                             [&](const StepRecord& step) { return step.figures.contains(name); });
}
bool has_rewards(const RunRecord& record) {
  return has_figure(record, "rewards_chosen") || has_figure(record, "rewards_rejected");
}
bool has_accuracy(const RunRecord& record) {
  return std::ranges::any_of(
      record.steps, [](const StepRecord& step) { return accuracy_in(step.figures).has_value(); });
}
const char* what_is_right(const RunRecord& record) {
  return has_rewards(record) ? "pairs" : "texts";
}

template <class Record>
double accuracy(const Record& record) {
  return accuracy_in(record.figures).value_or(std::numeric_limits<double>::quiet_NaN());
}

template <class Record>
double figure(const Record& record, const std::string& name) {
  const auto found = record.figures.find(name);
  return found == record.figures.end() ? std::numeric_limits<double>::quiet_NaN() : found->second;
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
  if (!record.validation.empty()) {
    const ValidationRecord &first = record.validation.front(), &last = record.validation.back();
    out += first.step == last.step
               ? card(fmt::format("{:.2f}", last.loss),
                      fmt::format("validation loss, step {}", last.step))
               : card(fmt::format("{:.2f} → {:.2f}", first.loss, last.loss),
                      fmt::format("validation loss, steps {} and {}", first.step, last.step));
  }
  if (has_accuracy(record) && !record.validation.empty())
    out += card(fmt::format("{:.0f} %", 100 * accuracy(record.validation.back())),
                fmt::format("accuracy of {}, step {}", what_is_right(record),
                            record.validation.back().step));
  const SpeedRecord& speed = record.speed;
  if (speed.tokens_per_second > 0)
    out += card(with_commas(std::llround(std::min(speed.tokens_per_second, 1e15))),
                speed.share_of_peak > 0
                    ? fmt::format("tokens/s, {:.0f} % of peak", 100 * speed.share_of_peak)
                    : "tokens/s");
  const RunSummary summary = summary_of(record);
  std::string peak_label = "peak memory";
  if (summary.rank) peak_label += fmt::format(" of rank {}", *summary.rank);
  if (summary.predicted_bytes > 0)
    peak_label += ", planned " + format_bytes(summary.predicted_bytes);
  else if (record.device.budget_bytes > 0)
    peak_label += " of " + format_bytes(record.device.budget_bytes);
  out += card(format_bytes(summary.memory_bytes), peak_label);
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
  if (!record.reason.empty()) out += element("pre class=\"bad text\"", record.reason);
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

std::string loss_svg(const RunRecord& record, double width) {
  std::vector<std::pair<double, double>> train, val;
  for (const StepRecord& s : record.steps) train.emplace_back(s.step, s.loss);
  for (const ValidationRecord& v : record.validation) val.emplace_back(v.step, v.loss);
  // They stand for as many steps as an entry does.
  int64_t skipped = 0;
  for (const StepRecord& s : record.steps)
    if (!std::isfinite(s.loss)) skipped += s.count;
  const std::string left_out = skipped == 0
                                   ? ""
                                   : fmt::format(", without {} step{} whose loss is no number",
                                                 with_commas(skipped), skipped == 1 ? "" : "s");
  const std::string of = has_rewards(record)    ? has_accuracy(record) ? "per pair" : "per answer"
                         : has_accuracy(record) ? "per text"
                                                : "per loss token";
  LineChart chart{"Loss", of + left_out, with_mean("training", "c0", std::move(train))};
  chart.width = width;
  if (!val.empty())
    chart.series.push_back({"validation", "c1", Series::Look::Dots, std::move(val)});
  return line_chart(chart);
}

// Beside a teacher, from which the loss is a distance.
std::string sft_loss_svg(const RunRecord& record, double width) {
  constexpr const char* kSftLoss = "sft_loss";
  if (!has_figure(record, kSftLoss)) return "";
  std::vector<std::pair<double, double>> train, held_out;
  for (const StepRecord& s : record.steps) train.emplace_back(s.step, figure(s, kSftLoss));
  for (const ValidationRecord& v : record.validation)
    held_out.emplace_back(v.step, figure(v, kSftLoss));
  LineChart chart{.title = "Loss of the answers",
                  .unit = "per loss token, as sft has it",
                  .series = with_mean("training", "c0", std::move(train)),
                  .width = width};
  if (!held_out.empty())
    chart.series.push_back({"validation", "c1", Series::Look::Dots, std::move(held_out)});
  return line_chart(chart);
}

std::string rewards_svg(const RunRecord& record, double width) {
  if (!has_rewards(record)) return "";
  LineChart chart{
      .title = "Rewards",
      .unit = has_accuracy(record) ? "mean over a step's pairs" : "mean over a step's answers",
      .width = width};
  const std::pair<const char*, const char*> shown[] = {{"chosen", "c0"}, {"rejected", "c1"}};
  for (const auto& [name, colour] : shown) {
    const std::string key = fmt::format("rewards_{}", name);
    std::vector<std::pair<double, double>> points, held_out;
    for (const StepRecord& s : record.steps) points.emplace_back(s.step, figure(s, key));
    for (const ValidationRecord& v : record.validation)
      held_out.emplace_back(v.step, figure(v, key));
    chart.series.push_back({name, colour, Series::Look::Line, std::move(points)});
    if (!held_out.empty())
      chart.series.push_back(
          {fmt::format("{}, held out", name), colour, Series::Look::Dots, std::move(held_out)});
  }
  return line_chart(chart);
}

std::string accuracy_svg(const RunRecord& record, double width) {
  if (!has_accuracy(record)) return "";
  std::vector<std::pair<double, double>> train, held_out;
  for (const StepRecord& s : record.steps) train.emplace_back(s.step, accuracy(s));
  for (const ValidationRecord& v : record.validation) held_out.emplace_back(v.step, accuracy(v));
  LineChart chart{.title = "Accuracy",
                  .unit = fmt::format("share of {}", what_is_right(record)),
                  .series = with_mean("training", "c0", std::move(train)),
                  .from_zero = true,
                  .width = width};
  if (!held_out.empty())
    chart.series.push_back({"held out", "c1", Series::Look::Dots, std::move(held_out)});
  return line_chart(chart);
}

std::string throughput_svg(const RunRecord& record, double width) {
  std::vector<std::pair<double, double>> rate;
  for (const StepRecord& s : record.steps)
    if (s.seconds > 0) rate.emplace_back(s.step, static_cast<double>(s.tokens) / s.seconds);
  return line_chart({.title = "Throughput",
                     .unit = "tokens/s",
                     .series = with_mean("", "c3", std::move(rate)),
                     .from_zero = true,
                     .width = width});
}

std::string memory_svg(const RunRecord& record, double width) {
  StackedChart chart{
      .title = "Memory by phase", .limit = record.device.budget_bytes, .width = width};
  for (const Category& category : kCategories) chart.categories.emplace_back(category.name);
  for (const PhaseRecord& phase : shown_phases(record)) {
    if (phase.micro_batch > 1) continue;  // those are in the table
    StackedBar bar{fmt::format("step {}", shown_step(phase)), phase.phase, {}, phase.peak};
    for (const Category& category : kCategories) bar.segments.push_back(phase.*category.bytes);
    chart.bars.push_back(std::move(bar));
  }
  return stacked_chart(chart);
}

std::string report_html(const RunRecord& record) {
  HtmlPage html("snug: " + record.model.id, {assets::run_css});
  html.add(heading(record)).add(cards(record));
  for (const auto chart :
       {loss_svg, sft_loss_svg, rewards_svg, accuracy_svg, throughput_svg, memory_svg}) {
    const std::string wide = chart(record, /*width=*/760);
    if (!wide.empty()) html.add(either(wide, chart(record, kPhoneWidth)));
  }
  const std::vector<PhaseRecord> phases = shown_phases(record);
  if (!phases.empty())
    html.add(element("p class=\"mu\"",
                     "Bars: allocated at the end of the phase; tick: peak so far; dashed line: "
                     "budget, if set."))
        .add(element("pre", memory_table(phases)));
  if (!record.ranks.empty())
    html.add(element("p class=\"mu\"", "Bars and table are of rank 0. The peak of each process:"))
        .add(element("pre", rank_table(record.ranks)));
  if (!record.experts.empty())
    html.add(element("p class=\"mu\"",
                     "Experts: shares of each block's tokens, mean over the steps; evenness is the "
                     "shares' entropy over that of equal ones."))
        .add(element("pre", expert_table(record.experts)));
  if (!record.sources.empty()) html.add(element("pre", source_table(record)));
  if (record.epochs.size() > 1) html.add(element("pre", epoch_table(record.epochs)));
  if (!record.steps.empty()) html.add(element("pre", summary_block(summary_of(record))));
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

namespace {

std::string legend(const PlanPage& page) {
  std::string out = "<p>";
  for (size_t c = 0; c < page.categories.size(); ++c) {
    const bool used = std::any_of(page.moments.begin(), page.moments.end(),
                                  [&](const PlanMoment& m) { return m.by_category[c] > 0; });
    if (!used) continue;
    out += fmt::format("<span class=\"key\"><i style=\"background:var(--k{})\"></i>{}</span>",
                       c % 8, xml_escape(page.categories[c]));
  }
  return out + "</p>";
}

std::string table(const PlanPage& page) {
  std::string out =
      "<details><summary>All moments</summary><div "
      "class=\"scroll\"><table><tr><th>where</th><th>all</th>";
  for (const std::string& category : page.categories) out += element("th", category);
  out += "</tr>";
  for (const PlanMoment& moment : page.moments) {
    out += "<tr>" + element("td", moment.label) + element("td", format_bytes(total(moment)));
    for (const int64_t bytes : moment.by_category)
      out += element("td", bytes == 0 ? "–" : format_bytes(bytes));
    out += "</tr>";
  }
  return out + "</table></div></details>";
}

}  // namespace

std::string plan_html(const PlanPage& page) {
  HtmlPage html(page.title, {assets::plan_css, assets::timeline_css});
  std::string lines;
  for (const std::string& line : page.lines) lines += line + "\n";
  html.add(element("h1", page.title)).add(element("pre class=\"lines\"", lines));
  html.add_section("Memory over one step", timeline_chart({.categories = page.categories,
                                                           .moments = page.moments,
                                                           .limit_bytes = page.limit_bytes}) +
                                               legend(page));
  for (const auto& [heading, text] : page.sections)
    if (!text.empty()) html.add_section(heading, element("pre", text));
  if (!page.fit.above.empty())
    html.add_section("What would fit", element("pre class=\"lines\"", page.fit.above) +
                                           "<div class=\"fit\">" + page.fit.table + "</div>" +
                                           element("pre class=\"lines\"", page.fit.below));
  return html.add(table(page)).html();
}

std::string sparkline(const std::vector<int64_t>& values, int width) {
  static constexpr std::array kBlocks = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  if (values.empty() || width <= 0) return "";
  const int64_t most = std::max<int64_t>(1, *std::max_element(values.begin(), values.end()));
  const auto columns = std::min<size_t>(static_cast<size_t>(width), values.size());
  std::string out;
  for (size_t column = 0; column < columns; ++column) {
    const auto first =
        values.begin() + static_cast<std::ptrdiff_t>(column * values.size() / columns);
    const auto last =
        values.begin() + static_cast<std::ptrdiff_t>((column + 1) * values.size() / columns);
    const int64_t highest = *std::max_element(first, last);
    out += kBlocks[static_cast<size_t>(
        std::min<double>(7, 8.0 * static_cast<double>(highest) / static_cast<double>(most)))];
  }
  return out;
}

}  // namespace snug::report
