// The charts of all rows: memory against time, and memory by category.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "lab/page/page.h"
#include "lab/report/figures.h"
#include "report/charts/charts.h"
#include "report/html_page.h"

namespace snug::lab {
namespace {

using report::xml_escape;

// "ls01" if that distinguishes the rows, else the id without the common part.
std::vector<std::string> short_names(const std::vector<const RowView*>& views) {
  std::vector<std::string> heads, tails;
  std::string common = views.empty() ? "" : views[0]->row->id;
  for (const RowView* view : views) {
    const std::string& id = view->row->id;
    heads.push_back(id.substr(0, id.find('-')));
    const auto end = std::mismatch(common.begin(), common.end(), id.begin(), id.end()).first;
    common.erase(end, common.end());
  }
  if (std::set<std::string>(heads.begin(), heads.end()).size() == heads.size()) return heads;
  const size_t dash = common.rfind('-');
  const size_t skipped = dash == std::string::npos || views.size() < 2 ? 0 : dash + 1;
  for (const RowView* view : views) tails.push_back(view->row->id.substr(skipped));
  return tails;
}

// The one limit of all rows; 0 where they have several.
int64_t common_limit(const std::vector<const RowView*>& views) {
  int64_t limit = 0;
  for (const RowView* view : views) {
    const int64_t mine = view->result->limit_bytes;
    if (mine <= 0) continue;
    if (limit > 0 && limit != mine) return 0;
    limit = mine;
  }
  return limit;
}

// The largest value that a drawing of memory has to hold: of a row that ran out, what is available.
double largest_value(const std::vector<const RowView*>& views) {
  double most = 1;
  for (const RowView* view : views) {
    const int64_t limit = view->result->limit_bytes, needed = needed_bytes(*view->own);
    most = std::max(most, static_cast<double>(ran_out(*view) && limit > 0 ? limit : needed));
  }
  return most;
}

bool has_reserved(const std::vector<const RowView*>& views) {
  return std::any_of(views.begin(), views.end(),
                     [](const RowView* view) { return view->own->peak_reserved > 0; });
}

// Seconds for a thousand tokens: rows differ in how many a step has.
double time_of(const RowView& view) {
  const auto of = [](double tokens_per_second) {
    return tokens_per_second > 0 ? 1000 / tokens_per_second : 0;
  };
  if (view.own != nullptr && view.own->tokens_per_second > 0)
    return of(view.own->tokens_per_second);
  return view.result->predicted ? of(view.result->predicted->tokens_per_second) : 0;
}

std::string hint_of(const RowView& view) {
  const std::string time = seconds_text(time_of(view)) + " for 1,000 tokens";
  return fmt::format("{}: {}, {}{}", view.row->id, memory_text(needed_bytes(*view.own)),
                     ran_out(view) ? "out of memory, planned " : "", time);
}

// Models by their first mention, each with a colour.
std::map<std::string, size_t> colours_of_models(const std::vector<const RowView*>& views) {
  std::map<std::string, size_t> out;
  for (const RowView* view : views) out.emplace(view->row->model, out.size());
  return out;
}

std::string bar_words(const RowView& view, const std::vector<std::string>& categories) {
  std::string out;
  for (const std::string& category : categories) {
    const int64_t bytes = bytes_of(*view.own, category);
    if (bytes > 0) out += fmt::format("{} {}, ", category_words(category), memory_text(bytes));
  }
  out += fmt::format("in all {}", memory_text(view.own->peak_allocated));
  if (view.own->peak_reserved > view.own->peak_allocated)
    out += fmt::format(", reserved {}", memory_text(view.own->peak_reserved));
  if (view.result->limit_bytes > 0)
    out += fmt::format(" of {}", memory_text(view.result->limit_bytes));
  return out;
}

std::string bar_of(const RowView& view, const std::vector<std::string>& categories, double full) {
  const auto share = [&](int64_t bytes) { return 100 * static_cast<double>(bytes) / full; };
  std::string out =
      fmt::format("<div class=\"bar\" role=\"img\" aria-label=\"{}\" title=\"{}\">",
                  xml_escape(bar_words(view, categories)), xml_escape(bar_words(view, categories)));
  for (size_t c = 0; c < categories.size(); ++c) {
    const int64_t bytes = bytes_of(*view.own, categories[c]);
    if (bytes > 0)
      out +=
          fmt::format("<i style=\"width:{:.2f}%;background:{}\"></i>", share(bytes), colour_of(c));
  }
  if (const int64_t more = needed_bytes(*view.own) - view.own->peak_allocated; more > 0)
    out += fmt::format("<i class=\"kept\" style=\"width:{:.2f}%\"></i>", share(more));
  if (const auto limit = static_cast<double>(view.result->limit_bytes); limit > 0 && limit <= full)
    out += fmt::format("<b style=\"left:{:.2f}%\"></b>", share(view.result->limit_bytes));
  return out + "</div>";
}

}  // namespace

std::string anchor_of(const RowView& view) {
  std::string out = "row-";
  for (const char c : view.row->id) {
    const bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                          (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
    out += is_plain ? std::string(1, c) : fmt::format("_{:02x}", static_cast<unsigned char>(c));
  }
  return out;
}

namespace {

// Models by colour, and what else a person has to know of the marks.
std::string key_of_scatter(const LabRun& run, const std::map<std::string, size_t>& models,
                           const std::vector<const RowView*>& shown, const std::string& left_out,
                           const std::string& far_limit) {
  std::string out = "<ul class=\"key\">";
  if (models.size() > 1 && models.size() <= 8) {
    std::vector<std::pair<size_t, std::string>> ordered;
    for (const auto& [model, index] : models) ordered.emplace_back(index, model);
    std::sort(ordered.begin(), ordered.end());
    for (const auto& [index, model] : ordered) out += key_entry(colour_of(index), model);
  }
  if (std::any_of(shown.begin(), shown.end(), [](const RowView* view) { return ran_out(*view); }))
    out += run.mode == Mode::Plan
               ? "<li>✕ does not fit: drawn at the available memory</li>"
               : "<li>✕ ran out of memory: drawn at the available memory and the planned time</li>";
  if (!far_limit.empty()) out += fmt::format("<li>available: {}</li>", far_limit);
  if (!left_out.empty()) out += fmt::format("<li>without a time: {}</li>", xml_escape(left_out));
  return out + "</ul>";
}

// "1 ls01, 2 ls02": names of the marks that have numbers.
std::string numbers_key(const report::ScatterChart& chart, const std::vector<size_t>& numbered) {
  if (numbered.empty()) return "";
  std::string out = "<ul class=\"key\">";
  for (const size_t i : numbered)
    out += fmt::format("<li>{} {}</li>", i + 1, xml_escape(chart.points[i].label));
  return out + "</ul>";
}

// Once for a desk, and once for a phone, which has no room for names.
std::string both_sizes(report::ScatterChart chart, const std::string& title) {
  std::vector<size_t> numbered;
  const std::string wide = report::scatter_chart(chart, &numbered);
  const std::string of_desk = scrolling(title, wide) + numbers_key(chart, numbered);
  chart.width = 360;
  chart.height = 380;
  chart.all_numbered = true;
  const std::string small = report::scatter_chart(chart, &numbered);
  return either(of_desk, small + numbers_key(chart, numbered));
}

}  // namespace

std::string memory_against_time(const LabRun& run, const std::vector<RowView>& views) {
  std::vector<const RowView*> shown;
  std::string left_out;
  double fastest = 0, slowest = 0;
  for (const RowView& view : views) {
    if (!came_to_an_end(view) || view.own->peak_allocated <= 0) continue;
    if (time_of(view) <= 0) {
      left_out += (left_out.empty() ? "" : ", ") + view.row->id;
      continue;
    }
    shown.push_back(&view);
    const double seconds = time_of(view);
    fastest = shown.size() == 1 ? seconds : std::min(fastest, seconds);
    slowest = std::max(slowest, seconds);
  }
  if (shown.size() < 2) return "";
  const double most = largest_value(shown);
  const ByteUnit unit = chart_unit(most);
  const bool in_milliseconds = slowest < 1;
  const std::map<std::string, size_t> models = colours_of_models(shown);
  const std::vector<std::string> names = short_names(shown);
  report::ScatterChart chart;
  chart.name = "Peak memory against the time for 1,000 tokens, one point per row";
  chart.x_label = in_milliseconds ? "milliseconds for 1,000 tokens" : "seconds for 1,000 tokens";
  chart.y_label =
      fmt::format("peak memory{}, {}", has_reserved(shown) ? " reserved" : "", unit.name);
  chart.logarithmic_x = slowest / fastest >= kLogarithmicFrom;
  if (chart.logarithmic_x) chart.x_label += ", logarithmic";
  std::string far_limit;
  if (const int64_t limit = common_limit(shown); is_far_above(static_cast<double>(limit), most)) {
    far_limit = memory_text(limit);
  } else if (limit > 0) {
    chart.limit = static_cast<double>(limit) / unit.bytes;
    chart.limit_name = "available: " + memory_text(limit);
  }
  for (size_t i = 0; i < shown.size(); ++i) {
    const RowView& view = *shown[i];
    const int64_t limit = view.result->limit_bytes;
    const bool at_limit = ran_out(view) && limit > 0;
    chart.points.push_back(
        {names[i], hint_of(view), "#" + anchor_of(view),
         time_of(view) * (in_milliseconds ? 1000 : 1),
         static_cast<double>(at_limit ? limit : needed_bytes(*view.own)) / unit.bytes,
         fmt::format("c{}", models.at(view.row->model) % 8), ran_out(view)});
  }
  const std::string title = "Memory against time";
  return figure(
      title, run.mode == Mode::Plan ? "as planned; lower left is better" : "lower left is better",
      both_sizes(chart, title) + key_of_scatter(run, models, shown, left_out, far_limit));
}

std::string memory_by_category(const LabRun& run, const std::vector<RowView>& views) {
  std::vector<const RowView*> shown;
  std::vector<const Figures*> all;
  for (const RowView& view : views)
    if (came_to_an_end(view)) {
      shown.push_back(&view);
      all.push_back(view.own);
    }
  const std::vector<std::string> categories = categories_of(all);
  if (categories.empty()) return "";
  double most = 1;
  for (const Figures* figures : all)
    most = std::max(most, static_cast<double>(needed_bytes(*figures)));
  double full = most;
  int64_t far_limit = 0;
  for (const RowView* view : shown) {
    const auto limit = static_cast<double>(view->result->limit_bytes);
    if (is_far_above(limit, most))
      far_limit = std::max(far_limit, view->result->limit_bytes);
    else
      full = std::max(full, limit);
  }
  std::string out = "<ul class=\"key\">";
  for (size_t c = 0; c < categories.size(); ++c)
    if (std::any_of(all.begin(), all.end(), [&](const Figures* figures) {
          return is_visible(bytes_of(*figures, categories[c]), full);
        }))
      out += key_entry(colour_of(c), category_words(categories[c]));
  if (has_reserved(shown)) out += "<li><i class=\"kept\"></i>reserved beyond that</li>";
  const auto has_tick = [&](const RowView* view) {
    const auto limit = static_cast<double>(view->result->limit_bytes);
    return limit > 0 && limit <= full;
  };
  if (std::any_of(shown.begin(), shown.end(), has_tick))
    out += "<li><i class=\"tick\"></i>available memory</li>";
  if (far_limit > 0) out += fmt::format("<li>available: {}</li>", memory_text(far_limit));
  out += "</ul><ul class=\"bars\">";
  for (const RowView* view : shown)
    out += fmt::format("<li><a href=\"#{}\">{}</a>{}<span class=\"sum\">{}{}</span></li>",
                       xml_escape(anchor_of(*view)), xml_escape(view->row->id),
                       bar_of(*view, categories, full), memory_text(needed_bytes(*view->own)),
                       ran_out(*view) ? " ✗" : "");
  return figure(
      "Memory by category, at each row's peak",
      run.mode == Mode::Plan ? "as planned" : "measured, or as planned for rows out of memory",
      out + "</ul>");
}

// The charts of one row: memory over a step, and the loss.

std::string memory_over_a_step(const RowView& view, size_t most_moments) {
  if (!view.result->predicted || view.result->predicted->timeline.empty()) return "";
  const Figures& plan = *view.result->predicted;
  report::TimelineChart chart;
  chart.categories = categories_of({&plan});
  // A moment may have what the peak has not.
  for (const Moment& moment : plan.timeline)
    for (const auto& [category, bytes] : moment.by_category)
      if (bytes > 0 && std::find(chart.categories.begin(), chart.categories.end(), category) ==
                           chart.categories.end())
        chart.categories.push_back(category);
  std::vector<report::PlanMoment> moments;
  const report::PlanMoment* highest = nullptr;
  for (const Moment& moment : plan.timeline) {
    report::PlanMoment one{moment.unit + ", " + moment.phase, moment.phase, {}};
    for (const std::string& category : chart.categories) {
      const auto found = moment.by_category.find(category);
      one.by_category.push_back(found == moment.by_category.end() ? 0 : found->second);
    }
    moments.push_back(std::move(one));
  }
  for (const report::PlanMoment& moment : moments)
    if (highest == nullptr || total(moment) > total(*highest)) highest = &moment;
  const std::string peak =
      fmt::format("highest in {}: {}", highest->label, memory_text(total(*highest)));
  chart.name = "Memory over one step by category, as planned; " + peak;
  chart.limit_name = "there is";
  chart.limit_bytes = view.result->limit_bytes;
  chart.moments = report::thinned(moments, most_moments);
  std::string key = "<ul class=\"key\">";
  for (size_t c = 0; c < chart.categories.size(); ++c)
    if (std::any_of(moments.begin(), moments.end(), [&](const report::PlanMoment& moment) {
          return is_visible(moment.by_category[c], static_cast<double>(total(*highest)));
        }))
      key += key_entry(colour_of(c), category_words(chart.categories[c]));
  std::string aside = "as planned, " + peak;
  if (is_far_above(static_cast<double>(chart.limit_bytes), static_cast<double>(total(*highest))))
    aside += "; available: " + memory_text(chart.limit_bytes);
  return figure("Memory over one step", aside, timeline_chart(chart) + key + "</ul>");
}

std::string loss_curve(const RowView& view) {
  if (view.result->losses.size() < 2) return "";
  report::LineChart chart;
  chart.title = "Loss";
  chart.unit = "per loss token";
  chart.has_style = false;
  chart.width = 480;
  std::vector<std::pair<double, double>> points;
  for (const LossPoint& point : view.result->losses)
    points.emplace_back(static_cast<double>(point.step), point.loss);
  const std::string last =
      fmt::format("from {:.4g} to {:.4g}", points.front().second, points.back().second);
  const bool is_short = points.size() <= 20;
  chart.series.push_back({"", "c0",
                          is_short ? report::Series::Look::Dots : report::Series::Look::Line,
                          std::move(points)});
  const std::string wide = report::line_chart(chart);
  if (wide.empty()) return "";
  chart.width = kPhoneWidth;
  return figure("Training loss", last,
                "<div class=\"narrow\">" + either(wide, report::line_chart(chart)) + "</div>");
}

}  // namespace snug::lab
