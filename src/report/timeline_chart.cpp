// SPDX-License-Identifier: Apache-2.0
#include "report/timeline_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/bytes.h"
#include "report/svg_chart.h"

namespace snug::report {
namespace {

constexpr double kWidth = 960, kHeight = 340, kLeft = 70, kBottom = 24, kTop = 12;

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

class Drawing {
 public:
  explicit Drawing(const TimelineChart& chart) : chart_(chart) {
    const int64_t most = largest(chart);
    // A limit far above the curve would flatten it.
    top_ = static_cast<double>(shows_limit() ? std::max(most, chart.limit_bytes) : most) * 1.05;
  }

  std::string svg() const {
    std::string out = fmt::format("<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">",
                                  kWidth, kHeight, xml_escape(chart_.name));
    out += scale();
    // From the top down, each over what is above it: a band needs no lower edge then.
    for (size_t c = chart_.categories.size(); c-- > 0;) out += band(c);
    if (shows_limit()) out += limit();
    out += phases();
    for (size_t i = 0; i < chart_.moments.size(); ++i) out += hit(i);
    return out + "</svg>";
  }

 private:
  bool shows_limit() const {
    return chart_.limit_bytes > 0 && chart_.limit_bytes < 3 * largest(chart_);
  }
  double x(size_t i) const {
    return kLeft + (kWidth - kLeft) * static_cast<double>(i) /
                       static_cast<double>(std::max<size_t>(1, chart_.moments.size()));
  }
  double y(double bytes) const {
    return kHeight - kBottom - (kHeight - kBottom - kTop) * bytes / top_;
  }

  std::string scale() const {
    std::string out;
    const auto [unit, word] = axis_unit(top_);
    const double step = tick_step(top_ / unit);
    for (int i = 0; i * step * unit <= top_; ++i) {
      const double height = y(i * step * unit);
      out += fmt::format(
          "<line x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"var(--line)\"/>"
          "<text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{:g} {}</text>",
          kLeft, kWidth, height, height, kLeft - 6, height + 4, i * step, word);
    }
    return out;
  }

  std::string limit() const {
    const double at = y(static_cast<double>(chart_.limit_bytes));
    return fmt::format(
        "<line class=\"limit\" x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>"
        "<text class=\"limit-name\" x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{} {}</text>",
        kLeft, kWidth, at, at, kWidth - 4, at - 6 < kTop + 8 ? at + 16 : at - 6,
        xml_escape(chart_.limit_name), format_bytes(chart_.limit_bytes));
  }

  // Steps rather than slopes: memory holds between two moments.
  std::string band(size_t category) const {
    const double ground = y(0);
    std::string path = fmt::format("M{:.0f} {:.0f}", x(0), ground);
    bool is_there = false;
    for (size_t i = 0; i < chart_.moments.size(); ++i) {
      const auto& bytes = chart_.moments[i].by_category;
      is_there = is_there || bytes[category] > 0;
      const auto upper = std::accumulate(
          bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(category) + 1, int64_t{0});
      path += fmt::format("V{:.1f}H{:.1f}", y(static_cast<double>(upper)), x(i + 1));
    }
    if (!is_there) return "";
    return fmt::format("<path fill=\"var(--k{})\" d=\"{}V{:.0f}Z\"/>", category % 8, path, ground);
  }

  // Where each phase begins, with its name; those without room for a name are left out.
  std::string phases() const {
    std::string out;
    const size_t count = chart_.moments.size();
    for (size_t from = 0, to = 0; from < count; from = to) {
      const std::string& phase = chart_.moments[from].phase;
      while (to < count && chart_.moments[to].phase == phase) ++to;
      constexpr double kLetter = 7;
      if (x(to) - x(from) < kLetter * static_cast<double>(phase.size())) continue;
      if (from > 0)
        out += fmt::format(
            "<line x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1}\" y2=\"{2}\" stroke=\"var(--mu)\" "
            "stroke-opacity=\".5\"/>",
            x(from), kTop, kHeight - kBottom + 6);
      out += fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                         (x(from) + x(to)) / 2, kHeight - 6, xml_escape(phase));
    }
    return out;
  }

  std::string hit(size_t i) const {
    const PlanMoment& moment = chart_.moments[i];
    std::string text = moment.label + ": " + format_bytes(total(moment));
    for (size_t c = 0; c < chart_.categories.size(); ++c)
      if (moment.by_category[c] > 0)
        text += fmt::format("\n{} {}", chart_.categories[c], format_bytes(moment.by_category[c]));
    return fmt::format(
        "<rect class=\"hit\" x=\"{:.1f}\" y=\"{}\" width=\"{:.1f}\" height=\"{}\"><title>{}</title>"
        "</rect>",
        x(i), kTop, x(i + 1) - x(i), kHeight - kBottom - kTop, xml_escape(text));
  }

  const TimelineChart& chart_;
  double top_ = 1;
};

}  // namespace

int64_t total(const PlanMoment& moment) {
  return std::accumulate(moment.by_category.begin(), moment.by_category.end(), int64_t{0});
}

std::string timeline_chart(const TimelineChart& chart) { return Drawing(chart).svg(); }

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
