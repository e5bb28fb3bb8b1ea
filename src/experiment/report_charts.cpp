// SPDX-License-Identifier: Apache-2.0
#include "experiment/report_charts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/bytes.h"
#include "experiment/figures.h"
#include "report/scatter_chart.h"
#include "report/svg_chart.h"
#include "report/timeline_chart.h"

namespace snug::experiment {
namespace {

using report::xml_escape;

constexpr double kSweepWidth = 520;     // two beside each other
constexpr double kLogarithmicFrom = 8;  // times between the smallest and the largest

struct ByteUnit {
  const char* name;
  double bytes;
};

ByteUnit unit_for(double largest) {
  if (largest >= static_cast<double>(kGiB)) return {"GiB", static_cast<double>(kGiB)};
  return {"MiB", static_cast<double>(kMiB)};
}

std::string figure(const std::string& title, const std::string& aside, const std::string& inside) {
  return fmt::format("<figure><figcaption>{}{}</figcaption>{}</figure>\n", xml_escape(title),
                     aside.empty() ? "" : fmt::format(" <span>{}</span>", xml_escape(aside)),
                     inside);
}

// Wide drawings move inside their own frame, which the keyboard can reach.
std::string scrolling(const std::string& name, const std::string& inside) {
  return fmt::format(
      "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{}\">{}</div>",
      xml_escape(name), inside);
}

std::string key_entry(const std::string& colour, const std::string& words) {
  return fmt::format("<li><i style=\"background:{}\"></i>{}</li>", colour, xml_escape(words));
}

// Too thin to be seen anywhere is not worth an entry in the key.
bool is_visible(int64_t bytes, double full) { return static_cast<double>(bytes) > 0.004 * full; }

std::string colour_of(size_t index) { return fmt::format("var(--k{})", index % 8); }

// "ls01" where that tells the rows apart, else the whole id without what all have in common.
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

bool ran_out(const RowView& view) { return view.outcome.kind == OutcomeView::Kind::OutOfMemory; }

// A plan of a row that crashed says nothing of what it did.
bool came_to_an_end(const RowView& view) {
  return view.own != nullptr && (view.outcome.kind == OutcomeView::Kind::Good || ran_out(view));
}

double time_of(const RowView& view) {
  if (view.own != nullptr && view.own->step_seconds > 0) return view.own->step_seconds;
  return view.result->predicted ? view.result->predicted->step_seconds : 0;
}

std::string hint_of(const RowView& view) {
  std::string out = fmt::format("{}: {}", view.row->id, memory_text(view.own->peak_allocated));
  if (ran_out(view)) return out + ", out of memory";
  return out + fmt::format(", {} a step", seconds_text(time_of(view)));
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
  if (view.result->limit_bytes > 0)
    out += fmt::format("<b style=\"left:{:.2f}%\"></b>", share(view.result->limit_bytes));
  return out + "</div>";
}

using Points = std::vector<std::pair<double, double>>;

// One quantity over the values of a sweep: snug's and the published points.
struct Curve {
  std::string title, unit;
  Points own, published, counted;
  std::string counted_name;
  double limit = 0;
};

std::string draw(const Curve& curve, const Group& group, const std::string& own_name,
                 const std::vector<double>& values, const RowView* best) {
  report::LineChart chart;
  chart.title = curve.title;
  chart.unit = curve.unit;
  chart.from_zero = true;
  chart.x_label = group.over;
  chart.has_style = false;
  chart.width = kSweepWidth;
  chart.limit = curve.limit;
  chart.x_ticks = values;
  chart.logarithmic_x = values.front() > 0 && values.back() / values.front() >= kLogarithmicFrom;
  using Look = report::Series::Look;
  if (!curve.published.empty())
    chart.series.push_back({"published", "c1", Look::Rings, curve.published});
  if (!curve.counted.empty())
    chart.series.push_back({curve.counted_name, "c2", Look::Dots, curve.counted});
  if (!curve.own.empty()) chart.series.push_back({own_name, "c0", Look::Dots, curve.own});
  if (chart.series.empty()) return "";
  if (best != nullptr && best->row->value) {
    chart.mark = *best->row->value;
    chart.mark_name = "most tokens/s";
  }
  const std::string svg = report::line_chart(chart);
  if (svg.empty()) return "";
  return fmt::format("<figure class=\"narrow\">{}</figure>",
                     scrolling(group.title + ": " + curve.title, svg));
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

std::string memory_against_time(const LabRun& run, const std::vector<RowView>& views) {
  std::vector<const RowView*> shown;
  std::string left_out;
  double most = 0, fastest = 0, slowest = 0;
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
    if (!ran_out(view)) most = std::max(most, static_cast<double>(view.own->peak_allocated));
    most = std::max(most, static_cast<double>(view.result->limit_bytes));
  }
  if (shown.size() < 2) return "";
  const ByteUnit unit = unit_for(most);
  const bool in_milliseconds = slowest < 1;
  const std::map<std::string, size_t> models = colours_of_models(shown);
  const std::vector<std::string> names = short_names(shown);
  report::ScatterChart chart;
  chart.name = "Peak memory against time a step, a point a row; the same figures are in the table";
  chart.x_label = in_milliseconds ? "milliseconds a step" : "seconds a step";
  chart.y_label = fmt::format("peak memory, {}", unit.name);
  chart.logarithmic_x = slowest / fastest >= kLogarithmicFrom;
  if (chart.logarithmic_x) chart.x_label += ", logarithmic";
  if (const int64_t limit = common_limit(shown); limit > 0) {
    chart.limit = static_cast<double>(limit) / unit.bytes;
    chart.limit_name = "there is " + memory_text(limit);
  }
  for (size_t i = 0; i < shown.size(); ++i) {
    const RowView& view = *shown[i];
    const int64_t limit = view.result->limit_bytes;
    const bool at_limit = ran_out(view) && limit > 0;
    chart.points.push_back(
        {names[i], hint_of(view), "#" + anchor_of(view),
         time_of(view) * (in_milliseconds ? 1000 : 1),
         static_cast<double>(at_limit ? limit : view.own->peak_allocated) / unit.bytes,
         fmt::format("c{}", models.at(view.row->model) % 8), ran_out(view)});
  }
  std::string key = "<ul class=\"key\">";
  if (models.size() > 1 && models.size() <= 8) {
    std::vector<std::pair<size_t, std::string>> ordered;
    for (const auto& [model, index] : models) ordered.emplace_back(index, model);
    std::sort(ordered.begin(), ordered.end());
    for (const auto& [index, model] : ordered) key += key_entry(colour_of(index), model);
  }
  key += "<li>✕ ran out of memory, drawn at what there is</li>";
  if (!left_out.empty()) key += fmt::format("<li>without a time: {}</li>", xml_escape(left_out));
  const std::string title = "Memory against time";
  return figure(
      title, run.mode == Mode::Plan ? "as planned; low and left is good" : "low and left is good",
      scrolling(title, report::scatter_chart(chart)) + key + "</ul>");
}

std::string memory_by_category(const LabRun& run, const std::vector<RowView>& views) {
  std::vector<const Figures*> all;
  double full = 1;
  for (const RowView& view : views) {
    if (!came_to_an_end(view)) continue;
    all.push_back(view.own);
    full = std::max({full, static_cast<double>(view.own->peak_allocated),
                     static_cast<double>(view.result->limit_bytes)});
  }
  const std::vector<std::string> categories = categories_of(all);
  if (categories.empty()) return "";
  std::string out = "<ul class=\"key\">";
  for (size_t c = 0; c < categories.size(); ++c)
    if (std::any_of(all.begin(), all.end(), [&](const Figures* figures) {
          return figures != nullptr && is_visible(bytes_of(*figures, categories[c]), full);
        }))
      out += key_entry(colour_of(c), category_words(categories[c]));
  out += "<li><i class=\"tick\"></i>what there is</li></ul><ul class=\"bars\">";
  for (const RowView& view : views) {
    if (!came_to_an_end(view)) continue;
    out += fmt::format("<li><a href=\"#{}\">{}</a>{}<span class=\"sum\">{}{}</span></li>",
                       xml_escape(anchor_of(view)), xml_escape(view.row->id),
                       bar_of(view, categories, full), memory_text(view.own->peak_allocated),
                       ran_out(view) ? " ✗" : "");
  }
  return figure("Memory by category, at each row's peak",
                run.mode == Mode::Plan ? "as planned" : "measured; where it ran out, as planned",
                out + "</ul>");
}

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
  return figure(
      "Memory over one step", "as planned, " + peak,
      scrolling("Memory over one step of " + view.row->id, timeline_chart(chart)) + key + "</ul>");
}

std::string loss_curve(const RowView& view) {
  if (view.result->losses.size() < 2) return "";
  report::LineChart chart;
  chart.title = "Loss";
  chart.unit = "per loss token";
  chart.has_style = false;
  Points points;
  for (const LossPoint& point : view.result->losses)
    points.emplace_back(static_cast<double>(point.step), point.loss);
  const std::string last =
      fmt::format("from {:.4g} to {:.4g}", points.front().second, points.back().second);
  const bool is_short = points.size() <= 20;
  chart.series.push_back({"", "c0",
                          is_short ? report::Series::Look::Dots : report::Series::Look::Line,
                          std::move(points)});
  const std::string svg = report::line_chart(chart);
  if (svg.empty()) return "";
  return figure("Training loss", last, scrolling("Loss of " + view.row->id, svg));
}

std::string sweep_charts(const Group& group, const std::vector<const RowView*>& members) {
  Curve memory{"Peak memory", "GiB", {}, {}, {}, "", 0},
      time{"Time a step", "ms", {}, {}, {}, "", 0};
  Curve flops{"Work", "TFLOP/s over all devices", {}, {}, {}, "", 0};
  Curve use{"Device use", "% of the step", {}, {}, {}, "", 0};
  std::vector<double> values;
  double most = 0;
  for (const RowView* view : members)
    if (view->own != nullptr) most = std::max(most, static_cast<double>(needed_bytes(*view->own)));
  const ByteUnit unit = unit_for(most);
  memory.unit = fmt::format("{}, reserved where known", unit.name);
  for (const RowView* view : members) {
    if (!view->row->value) continue;
    const double at = *view->row->value;
    values.push_back(at);
    const Published& published = view->row->published;
    const auto bytes = [&](double value) { return value / unit.bytes; };
    if (!published.reserved.empty())
      memory.published.emplace_back(
          at, bytes(*std::max_element(published.reserved.begin(), published.reserved.end())));
    if (published.iteration_seconds)
      time.published.emplace_back(at, 1000 * *published.iteration_seconds);
    if (published.teraflops_per_second)
      flops.published.emplace_back(at, *published.teraflops_per_second);
    if (published.device_use) use.published.emplace_back(at, 100 * *published.device_use);
    if (view->result->like) {
      memory.counted_name = program_words(view->result->like_program) + ", counted";
      const Figures& like = *view->result->like;
      memory.counted.emplace_back(
          at, bytes(static_cast<double>(std::max(needed_bytes(like), like.reserved_ahead))));
    }
    if (!came_to_an_end(*view)) continue;
    memory.own.emplace_back(at, bytes(static_cast<double>(needed_bytes(*view->own))));
    if (view->result->limit_bytes > 0)
      memory.limit = bytes(static_cast<double>(view->result->limit_bytes));
    if (ran_out(*view)) continue;
    if (view->own->step_seconds > 0) time.own.emplace_back(at, 1000 * view->own->step_seconds);
    if (view->own->model_flops_per_second > 0)
      flops.own.emplace_back(at, view->own->model_flops_per_second / 1e12);
    if (view->own->device_use > 0) use.own.emplace_back(at, 100 * view->own->device_use);
  }
  if (values.empty()) return "";
  std::sort(values.begin(), values.end());
  const RowView* best = best_of_sweep(members);
  const bool measured = members[0]->result->measured.has_value();
  std::string out = "<div class=\"sweep\">";
  for (const Curve& curve : {memory, time, flops, use})
    out += draw(curve, group, measured ? "snug, measured" : "snug, planned", values, best);
  return out + "</div>";
}

}  // namespace snug::experiment
