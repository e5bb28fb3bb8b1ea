// The curves of a sweep. What was published is of models at full size: points of it stand beside
// rows of that size alone, never on the axis of a scaled run.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "lab/page/page.h"
#include "lab/report/figures.h"
#include "report/charts/charts.h"

namespace snug::lab {
namespace {

constexpr double kSweepWidth = 520;  // two beside each other

using Points = std::vector<std::pair<double, double>>;

// One quantity over the values of a sweep: snug's and the published points.
struct Curve {
  std::string title, unit;
  Points own, published, counted;
  std::string counted_name;
  double limit = 0;
  std::string limit_words;
};

struct Curves {
  explicit Curves(const ByteUnit& unit)
      : bytes(unit.bytes), memory{"Peak memory", "", {}, {}, {}, "", 0, ""} {
    memory.unit = fmt::format("{}, reserved where known", unit.name);
  }
  void add_published(double at, const Published& published);
  void add_counted(double at, const RowResult& result);
  void add_own(double at, const RowView& view);

  double bytes;  // of the unit of memory
  Curve memory;
  Curve time{"Time a step", "ms", {}, {}, {}, "", 0, ""};
  Curve flops{"Work", "TFLOP/s over all devices", {}, {}, {}, "", 0, ""};
  Curve use{"Device use", "% of the step", {}, {}, {}, "", 0, ""};
};

void Curves::add_published(double at, const Published& published) {
  if (!published.reserved.empty())
    memory.published.emplace_back(
        at, *std::max_element(published.reserved.begin(), published.reserved.end()) / bytes);
  if (published.iteration_seconds)
    time.published.emplace_back(at, 1000 * *published.iteration_seconds);
  if (published.teraflops_per_second)
    flops.published.emplace_back(at, *published.teraflops_per_second);
  if (published.device_use) use.published.emplace_back(at, 100 * *published.device_use);
}

void Curves::add_counted(double at, const RowResult& result) {
  if (!result.like) return;
  memory.counted_name = program_words(result.like_program) + ", counted";
  const int64_t counted = std::max(needed_bytes(*result.like), result.like->reserved_ahead);
  memory.counted.emplace_back(at, static_cast<double>(counted) / bytes);
}

void Curves::add_own(double at, const RowView& view) {
  if (!came_to_an_end(view)) return;
  memory.own.emplace_back(at, static_cast<double>(needed_bytes(*view.own)) / bytes);
  if (view.result->limit_bytes > 0)
    memory.limit = static_cast<double>(view.result->limit_bytes) / bytes;
  if (view.result->limit_bytes > 0) memory.limit_words = memory_text(view.result->limit_bytes);
  if (ran_out(view)) return;
  if (view.own->step_seconds > 0) time.own.emplace_back(at, 1000 * view.own->step_seconds);
  if (view.own->model_flops_per_second > 0)
    flops.own.emplace_back(at, view.own->model_flops_per_second / 1e12);
  if (view.own->device_use > 0) use.own.emplace_back(at, 100 * view.own->device_use);
}

double largest_of(const Curve& curve) {
  double most = 0;
  for (const Points* points : {&curve.own, &curve.published, &curve.counted})
    for (const auto& [at, value] : *points) most = std::max(most, value);
  return most;
}

std::string draw(const Curve& curve, const Group& group, const std::string& own_name,
                 const std::vector<double>& values, const RowView* best) {
  report::LineChart chart;
  chart.title = curve.title;
  chart.unit = curve.unit;
  chart.from_zero = true;
  chart.x_label = group.over;
  chart.has_style = false;
  chart.width = kSweepWidth;
  const bool is_far = is_far_above(curve.limit, largest_of(curve));
  if (!is_far) chart.limit = curve.limit;
  if (is_far) chart.unit += "; available: " + curve.limit_words;
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
  const std::string wide = report::line_chart(chart);
  if (wide.empty()) return "";
  chart.width = kPhoneWidth;
  return fmt::format("<figure class=\"narrow\">{}</figure>",
                     either(wide, report::line_chart(chart)));
}

// By the largest of snug's own.
ByteUnit unit_of(const std::vector<const RowView*>& members) {
  double most = 0;
  for (const RowView* view : members)
    if (view->own != nullptr) most = std::max(most, static_cast<double>(needed_bytes(*view->own)));
  return chart_unit(most);
}

}  // namespace

std::string sweep_charts(const LabRun& run, const Group& group,
                         const std::vector<const RowView*>& members) {
  Curves curves(unit_of(members));
  std::vector<double> values;
  for (const RowView* view : members) {
    if (!view->row->value) continue;
    values.push_back(*view->row->value);
    if (is_full_size(run)) curves.add_published(values.back(), view->row->published);
    curves.add_counted(values.back(), *view->result);
    curves.add_own(values.back(), *view);
  }
  if (values.empty()) return "";
  std::sort(values.begin(), values.end());
  const RowView* best = best_of_sweep(members);
  const bool measured = members[0]->result->measured.has_value();
  std::string out = "<div class=\"sweep\">";
  for (const Curve& curve : {curves.memory, curves.time, curves.flops, curves.use})
    out += draw(curve, group, measured ? "snug, measured" : "snug, planned", values, best);
  return out + "</div>";
}

}  // namespace snug::lab
