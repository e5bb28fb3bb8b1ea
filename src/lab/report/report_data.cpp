// The report for programs: one line a row, bytes and seconds, in CSV and JSON.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string_view>

#include "base/files.h"
#include "lab/report/reports.h"
#include "lab/report/row_view.h"
#include "recipe/numbers.h"

namespace snug::lab {
namespace {

using nlohmann::json;

// A spreadsheet takes what begins like a formula for one.
std::string defused(const std::string& text) {
  const bool is_formula =
      !text.empty() && std::string_view("=+-@\t\r").find(text[0]) != std::string_view::npos;
  return is_formula && !recipe::parse_float(text) ? "'" + text : text;
}

std::string quoted(const std::string& raw) {
  const std::string text = defused(raw);
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"') out += '"';
    out += c;
  }
  return out + "\"";
}

std::string number(double value) { return value > 0 ? fmt::format("{}", value) : ""; }
std::string number(int64_t value) { return value > 0 ? fmt::format("{}", value) : ""; }

constexpr const char* kFigureColumns[] = {"peak_allocated", "peak_reserved", "after_forward",
                                          "peak_host",      "step_seconds",  "tokens_per_second"};

void add_figures(std::string& line, const std::optional<Figures>& figures) {
  const Figures f = figures.value_or(Figures{});
  for (const std::string& cell :
       {number(f.peak_allocated), number(f.peak_reserved), number(f.after_forward),
        number(f.peak_host), number(f.step_seconds), number(f.tokens_per_second)})
    line += "," + cell;
}

json figures_json(const std::optional<Figures>& figures) {
  if (!figures) return nullptr;
  const Figures& f = *figures;
  return {{"fits", f.fits},
          {"peak_allocated", f.peak_allocated},
          {"peak_reserved", f.peak_reserved},
          {"num_alloc_retries", f.num_alloc_retries},
          {"after_forward", f.after_forward},
          {"peak_host", f.peak_host},
          {"parameter_bytes", f.parameter_bytes},
          {"by_category", f.by_category},
          {"step_seconds", f.step_seconds},
          {"tokens_per_second", f.tokens_per_second},
          {"model_flops_per_second", f.model_flops_per_second},
          {"share_of_peak", f.share_of_peak},
          {"device_use", f.device_use},
          {"device_use_spread", f.device_use_spread}};
}

json checks_json(const RowVerdict& verdict) {
  json out = json::array();
  for (const FigureCheck& check : verdict.figures) {
    json one{{"what", check.what},
             {"unit", check.unit == FigureCheck::Unit::Seconds ? "seconds" : "bytes"},
             {"published", check.published},
             {"with", check.with},
             {"decides", check.decides},
             {"fitted", check.is_fitted},
             {"compared", nullptr},
             {"deviation", nullptr}};
    if (check.is_held()) {
      one["compared"] = check.compared;
      one["deviation"] = check.deviation();
      one["within_a_tenth"] = check.within_a_tenth();
    }
    out.push_back(std::move(one));
  }
  return out;
}

json cost_json(const RowView& view) {
  const auto million = cost_of(view, 1e6), epoch = cost_of_epoch(view);
  if (!million) return nullptr;
  json out{{"price_per_hour", view.price.per_hour},
           {"currency", view.price.currency},
           {"million_tokens_seconds", million->seconds},
           {"million_tokens_price", million->price},
           {"epoch_seconds", nullptr},
           {"epoch_price", nullptr}};
  if (!epoch) return out;
  out["epoch_seconds"] = epoch->seconds;
  out["epoch_price"] = epoch->price;
  return out;
}

json row_json_of(const RowView& view) {
  const RowResult& result = *view.result;
  json out{{"id", view.row->id},
           {"title", view.row->title},
           {"changes", view.changes},
           {"outcome", name(result.outcome)},
           {"reason", result.reason},
           {"expected", name(view.row->expected)},
           {"verdict", name(view.verdict.verdict)},
           {"reasons", view.verdict.reasons},
           {"why", view.why},
           {"published", checks_json(view.verdict)},
           {"explanation", view.explanation},
           {"limit_bytes", result.limit_bytes},
           {"close", !view.close.empty()},
           {"like_close", !view.counted_close.empty()},
           {"predicted", figures_json(result.predicted)},
           {"measured", figures_json(result.measured)},
           {"like", figures_json(result.like)},
           {"like_program", result.like_program},
           {"cost", cost_json(view)},
           {"group", view.row->group},
           {"value", nullptr},
           {"parameters", result.parameters},
           {"trained", result.trained},
           {"world_size", result.world_size},
           {"seconds", result.seconds},
           {"command", result.command}};
  if (view.row->value) out["value"] = *view.row->value;
  if (!result.losses.empty()) out["last_loss"] = result.losses.back().loss;
  return out;
}

}  // namespace

std::string report_csv(const LabRun& run) {
  std::string out = "id,title,changes,outcome,expected,verdict,limit_bytes";
  for (const char* kind : {"predicted", "measured", "like"})
    for (const char* column : kFigureColumns) out += fmt::format(",{}_{}", kind, column);
  out += ",like_program,published,largest_deviation,seconds,command";
  out += ",million_tokens_seconds,million_tokens_price,epoch_seconds,epoch_price,currency\n";
  for (const RowView& view : views_of(run)) {
    const RowResult& result = *view.result;
    std::string line = quoted(view.row->id);
    for (const std::string& cell :
         {view.row->title, view.changes, std::string(name(result.outcome)),
          std::string(name(view.row->expected)), std::string(name(view.verdict.verdict))})
      line += "," + quoted(cell);
    line += "," + number(result.limit_bytes);
    add_figures(line, result.predicted);
    add_figures(line, result.measured);
    add_figures(line, result.like);
    std::string published, deviation;
    double most = -1;
    for (const FigureCheck& check : view.verdict.figures) {
      if (!published.empty()) published += "; ";
      published += check.what + " " + published_text(check);
      if (!check.is_held() || std::abs(check.deviation()) <= most) continue;
      most = std::abs(check.deviation());
      deviation = fmt::format("{:.4f}", check.deviation());
    }
    for (const std::string& cell :
         {result.like_program, published, deviation, number(result.seconds), result.command})
      line += "," + quoted(cell);
    for (const std::optional<Cost>& cost : {cost_of(view, 1e6), cost_of_epoch(view)})
      line += "," + number(cost ? cost->seconds : 0) + "," + number(cost ? cost->price : 0);
    out += line + "," + quoted(view.price.currency) + "\n";
  }
  return out;
}

std::string report_json(const LabRun& run) {
  const std::vector<RowView> views = views_of(run);
  json rows = json::array();
  for (const RowView& view : views) rows.push_back(row_json_of(view));
  const LabRecord& record = run.record;
  const json out{{"schema", 1},
                 {"suite", record.suite},
                 {"title", record.title},
                 {"about", record.about},
                 {"source", record.source},
                 {"mode", name(run.mode)},
                 {"device", record.device},
                 {"hardware", record.hardware},
                 {"version", record.version},
                 {"versions", record.versions},
                 {"started", record.started},
                 {"seconds", record.seconds},
                 {"command", record.command},
                 {"summary", summary_line(run, views)},
                 {"rows", rows}};
  return out.dump(1, ' ', false, json::error_handler_t::replace) + "\n";
}

void write_reports(const LabRun& run) {
  write_file_atomically(run.folder / "report.html", report_html(run));
  write_file_atomically(run.folder / "report.md", report_markdown(run));
  write_file_atomically(run.folder / "report.csv", report_csv(run));
  write_file_atomically(run.folder / "report.json", report_json(run));
}

}  // namespace snug::lab
