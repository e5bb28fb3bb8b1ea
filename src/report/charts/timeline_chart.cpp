// SPDX-License-Identifier: Apache-2.0
#include "report/charts/charts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/bytes.h"
#include "report/html_page.h"

namespace snug::report {
namespace {

// The drawing's own units: the page spans them to any width, so that letters are beside it.
constexpr double kTimelineWidth = 1000, kTimelineHeight = 300;
constexpr double kUsualWidth = 890;  // px on a desk

int64_t largest(const TimelineChart& chart) {
  int64_t most = 1;
  for (const PlanMoment& moment : chart.moments) most = std::max(most, total(moment));
  return most;
}

std::pair<double, const char*> axis_unit(double top) {
  if (top >= static_cast<double>(kGiB)) return {static_cast<double>(kGiB), "GiB"};
  if (top >= static_cast<double>(kMiB)) return {static_cast<double>(kMiB), "MiB"};
  return {1024, "KiB"};
}

// 1, 2 or 5 times a power of ten, so that about five of them reach `top`.
double tick_step(double top) {
  const double power = std::pow(10, std::floor(std::log10(top / 5)));
  for (const double times : {1.0, 2.0, 5.0})
    if (top / (times * power) <= 6) return times * power;
  return 10 * power;
}

class TimelineDrawing {
 public:
  explicit TimelineDrawing(const TimelineChart& chart) : chart_(chart) {
    const int64_t most = largest(chart);
    // A limit far above the curve would flatten it.
    top_ = static_cast<double>(shows_limit() ? std::max(most, chart.limit_bytes) : most) * 1.05;
    const double unit = axis_unit(top_).first, step = unit * tick_step(top_ / unit);
    for (int i = 0; i * step <= top_; ++i) ticks_.push_back(i * step);
  }

  std::string html() const {
    std::string out = fmt::format(
        "<div class=\"timeline\" role=\"img\" aria-label=\"{}\">{}<div class=\"plot\">"
        "<svg viewBox=\"0 0 {} {}\" preserveAspectRatio=\"none\">",
        xml_escape(chart_.name), scale(), kTimelineWidth, kTimelineHeight);
    for (const double bytes : ticks_) out += line("grid", 0, kTimelineWidth, y(bytes), y(bytes));
    // From the top down, each over what is above it: a band needs no lower edge then.
    for (size_t c = chart_.categories.size(); c-- > 0;) out += band(c);
    const auto limit = static_cast<double>(chart_.limit_bytes);
    if (shows_limit()) out += line("limit", 0, kTimelineWidth, y(limit), y(limit));
    for (const PhaseSpan& phase : phases())
      if (phase.from > 0) out += line("edge", x(phase.from), x(phase.from), 0, kTimelineHeight);
    for (size_t i = 0; i < chart_.moments.size(); ++i) out += hit(i);
    out += "</svg>";
    if (shows_limit()) out += limit_name();
    return out + "</div>" + phase_names() + "</div>";
  }

 private:
  // Moments of one phase, [from, to).
  struct PhaseSpan {
    size_t from = 0, to = 0;
  };

  bool shows_limit() const {
    return chart_.limit_bytes > 0 && chart_.limit_bytes < 3 * largest(chart_);
  }
  double x(size_t i) const {
    return kTimelineWidth * static_cast<double>(i) /
           static_cast<double>(std::max<size_t>(1, chart_.moments.size()));
  }
  double y(double bytes) const { return kTimelineHeight * (1 - bytes / top_); }
  // Shares of the drawing's width and height, for what stands beside it.
  double percent_across(size_t i) const { return 100 * x(i) / kTimelineWidth; }
  double percent_up(double bytes) const { return 100 * bytes / top_; }

  static std::string line(const char* style, double x1, double x2, double y1, double y2) {
    return fmt::format(
        "<line class=\"{}\" x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>", style, x1,
        x2, y1, y2);
  }

  std::string scale() const {
    const auto [unit, word] = axis_unit(top_);
    std::string out = "<div class=\"scale\">";
    for (const double bytes : ticks_)
      out += fmt::format("<span style=\"bottom:{:.1f}%\">{:g} {}</span>", percent_up(bytes),
                         bytes / unit, word);
    return out + "</div>";
  }

  // Above its line, or below where that is the chart's edge.
  std::string limit_name() const {
    const double up = percent_up(static_cast<double>(chart_.limit_bytes));
    return fmt::format("<span class=\"limit-name{}\" style=\"bottom:{:.1f}%\">{} {}</span>",
                       up > 90 ? " below" : "", up, xml_escape(chart_.limit_name),
                       format_bytes(chart_.limit_bytes));
  }

  // Steps rather than slopes: memory holds between two moments.
  std::string band(size_t category) const {
    std::string path = fmt::format("M0 {:.0f}", kTimelineHeight);
    bool is_there = false;
    for (size_t i = 0; i < chart_.moments.size(); ++i) {
      const auto& bytes = chart_.moments[i].by_category;
      is_there = is_there || bytes[category] > 0;
      const auto upper = std::accumulate(
          bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(category) + 1, int64_t{0});
      path += fmt::format("V{:.1f}H{:.1f}", y(static_cast<double>(upper)), x(i + 1));
    }
    if (!is_there) return "";
    return fmt::format("<path fill=\"var(--k{})\" d=\"{}V{:.0f}Z\"/>", category % 8, path,
                       kTimelineHeight);
  }

  // Those with room for their name on a desk.
  std::vector<PhaseSpan> phases() const {
    std::vector<PhaseSpan> out;
    const size_t count = chart_.moments.size();
    for (size_t from = 0, to = 0; from < count; from = to) {
      const std::string& phase = chart_.moments[from].phase;
      while (to < count && chart_.moments[to].phase == phase) ++to;
      constexpr double kLetter = 7;
      const double room = (x(to) - x(from)) / kTimelineWidth * kUsualWidth;
      if (room >= kLetter * static_cast<double>(phase.size())) out.push_back({from, to});
    }
    return out;
  }

  // A name that finds no room on a narrower screen falls into a second line, which is not shown.
  std::string phase_names() const {
    std::string out = "<div class=\"phases\">";
    for (const PhaseSpan& phase : phases())
      out += fmt::format("<span style=\"left:{:.2f}%;width:{:.2f}%\"><b>{}</b></span>",
                         percent_across(phase.from),
                         percent_across(phase.to) - percent_across(phase.from),
                         xml_escape(chart_.moments[phase.from].phase));
    return out + "</div>";
  }

  std::string hit(size_t i) const {
    const PlanMoment& moment = chart_.moments[i];
    std::string text = moment.label + ": " + format_bytes(total(moment));
    for (size_t c = 0; c < chart_.categories.size(); ++c)
      if (moment.by_category[c] > 0)
        text += fmt::format("\n{} {}", chart_.categories[c], format_bytes(moment.by_category[c]));
    return fmt::format(
        "<rect class=\"hit\" x=\"{:.1f}\" y=\"0\" width=\"{:.1f}\" height=\"{}\"><title>{}</title>"
        "</rect>",
        x(i), x(i + 1) - x(i), kTimelineHeight, xml_escape(text));
  }

  const TimelineChart& chart_;
  double top_ = 1;             // bytes at the upper edge
  std::vector<double> ticks_;  // bytes
};

}  // namespace

int64_t total(const PlanMoment& moment) {
  return std::accumulate(moment.by_category.begin(), moment.by_category.end(), int64_t{0});
}

std::string timeline_chart(const TimelineChart& chart) { return TimelineDrawing(chart).html(); }

std::vector<PlanMoment> thinned(const std::vector<PlanMoment>& moments, size_t count) {
  if (moments.size() <= count || count == 0) return moments;
  std::vector<PlanMoment> out;
  size_t last_bucket = 0;
  for (size_t i = 0; i < moments.size(); ++i) {
    const size_t bucket = i * count / moments.size();
    if (out.empty() || bucket != last_bucket || out.back().phase != moments[i].phase)
      out.push_back(moments[i]);
    else if (total(moments[i]) > total(out.back()))
      out.back() = moments[i];
    last_bucket = bucket;
  }
  return out;
}

}  // namespace snug::report
