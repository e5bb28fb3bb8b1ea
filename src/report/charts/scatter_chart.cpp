// SPDX-License-Identifier: Apache-2.0
#include "report/charts/charts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/text.h"
#include "report/html_page.h"
#include "report/text_width.h"

namespace snug::report {
namespace {

constexpr double kLargest = 1e30;  // beyond it a value is shown as missing, like an infinity

std::vector<double> linear_ticks(const Axis& axis, int count) {
  const double raw = (axis.high - axis.low) / count;
  const double power = std::pow(10, std::floor(std::log10(raw)));
  const double ratio = raw / power;
  const double step = power * (ratio < 1.5 ? 1 : ratio < 3.5 ? 2 : ratio < 7.5 ? 5 : 10);
  std::vector<double> out;
  const double first = std::ceil(axis.low / step - 1e-9);
  for (double k = first; k * step <= axis.high + 1e-9 * step && out.size() < 50; ++k)
    out.push_back(k * step == 0 ? 0 : k * step);
  return out;
}

// 1, 2 and 5 of each decade; over many decades their powers of ten alone.
std::vector<double> logarithmic_ticks(const Axis& axis, int count) {
  const double decades = std::log10(axis.high / axis.low);
  std::vector<double> digits{1, 2, 5};
  if (3 * decades > 1.5 * count) digits = {1};
  std::vector<double> out;
  for (double power = std::floor(std::log10(axis.low)); power <= std::log10(axis.high); ++power)
    for (const double digit : digits) {
      const double value = digit * std::pow(10, power);
      if (value >= axis.low * (1 - 1e-9) && value <= axis.high * (1 + 1e-9)) out.push_back(value);
    }
  return out;
}

}  // namespace

bool is_drawable(double value) { return std::isfinite(value) && std::abs(value) < kLargest; }

void Axis::include(double value) {
  low = std::min(low, value);
  high = std::max(high, value);
}

void Axis::widen() {
  if (high - low > 1e-9 * std::abs(high)) return;
  const double room = high == 0 ? 1 : std::abs(high) * 0.1;
  low -= room;
  high += room;
}

double Axis::pixel(double value) const {
  const double share =
      logarithmic ? std::log(value / low) / std::log(high / low) : (value - low) / (high - low);
  return from + share * (to - from);
}

std::vector<double> ticks(const Axis& axis, int count) {
  return axis.logarithmic ? logarithmic_ticks(axis, count) : linear_ticks(axis, count);
}

std::string tick_text(double value) {
  if (std::abs(value) >= 10000 && std::abs(value) < 1e15) return with_commas(std::llround(value));
  return fmt::format("{:.4g}", value);
}

namespace {

constexpr double kScatterLeft = 56, kScatterRight = 24, kScatterTop = 30, kScatterBottom = 44;
constexpr double kLetter = 6.8, kLine = 14, kRadius = 5.5;

struct Box {
  double left = 0, top = 0, right = 0, bottom = 0;
  bool overlaps(const Box& other) const {
    return left < other.right && other.left < right && top < other.bottom && other.top < bottom;
  }
};

struct Place {
  double x = 0, y = 0;
  const char* anchor = "start";
  Box box;
};

class ScatterDrawing {
 public:
  explicit ScatterDrawing(const ScatterChart& chart) : chart_(chart) {
    x_.logarithmic = chart.logarithmic_x;
    for (const ScatterPoint& point : chart.points)
      if (is_drawable(point.x) && is_drawable(point.y)) {
        x_.include(point.x);
        y_.include(point.y);
      }
    if (x_.is_empty()) return;
    y_.include(0);
    if (chart.limit > 0) y_.include(chart.limit);
    x_.widen();
    y_.widen();
    y_.high *= 1.08;
    // Dots at the edge keep clear of the axes.
    if (x_.logarithmic) {
      x_.low /= 1.15;
      x_.high *= 1.15;
    } else {
      const double room = 0.05 * (x_.high - x_.low);
      x_.low = std::max(x_.low > 0 ? 0.0 : x_.low, x_.low - room);
      x_.high += room;
    }
    x_.from = kScatterLeft;
    x_.to = chart.width - kScatterRight;
    y_.from = chart.height - kScatterBottom;
    y_.to = kScatterTop;
  }

  std::string svg() {
    if (x_.is_empty()) return "";
    std::string out =
        fmt::format("<svg class=\"chart\" viewBox=\"0 0 {} {}\" role=\"group\" aria-label=\"{}\">",
                    chart_.width, chart_.height, xml_escape(chart_.name));
    out += scales() + limit();
    for (const ScatterPoint& point : chart_.points)
      if (is_drawn(point)) taken_.push_back(around(point));
    std::string names;
    for (size_t i = 0; i < chart_.points.size(); ++i)
      if (is_drawn(chart_.points[i])) names += name_of(i);
    for (const ScatterPoint& point : chart_.points)
      if (is_drawn(point)) out += mark(point);
    return out + names + "</svg>";
  }

  const std::vector<size_t>& numbered() const { return numbered_; }

 private:
  static bool is_drawn(const ScatterPoint& point) {
    return is_drawable(point.x) && is_drawable(point.y);
  }

  std::string scales() const {
    std::string out;
    for (const double tick : ticks(y_, 6))
      out += fmt::format(
          "<line class=\"grid\" x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>"
          "<text class=\"mu\" x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>",
          kScatterLeft, chart_.width - kScatterRight, y_.pixel(tick), y_.pixel(tick),
          kScatterLeft - 8, y_.pixel(tick) + 4, tick_text(tick));
    for (const double tick : ticks(x_, chart_.width < 600 ? 5 : 9))
      out +=
          fmt::format("<text class=\"mu\" x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                      x_.pixel(tick), chart_.height - kScatterBottom + 18, tick_text(tick));
    return out + fmt::format(
                     "<text class=\"mu\" x=\"0\" y=\"14\">{}</text>"
                     "<text class=\"mu\" x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>",
                     xml_escape(chart_.y_label), chart_.width - kScatterRight, chart_.height - 8,
                     xml_escape(chart_.x_label));
  }

  // Its name stands on the left, or on the right where a point is in the way.
  std::string limit() {
    if (chart_.limit <= 0) return "";
    const double at = y_.pixel(chart_.limit);
    const double width = kLetter * static_cast<double>(display_width(chart_.limit_name)) + 6;
    Box box{kScatterLeft, at - kLine - 4, kScatterLeft + width, at};
    const bool is_taken = std::any_of(
        chart_.points.begin(), chart_.points.end(),
        [&](const ScatterPoint& point) { return is_drawn(point) && around(point).overlaps(box); });
    if (is_taken)
      box = {chart_.width - kScatterRight - width, box.top, chart_.width - kScatterRight,
             box.bottom};
    taken_.push_back(box);
    return fmt::format(
        "<line class=\"limit\" x1=\"{0}\" x2=\"{1}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\"/>"
        "<text class=\"mu\" x=\"{3:.1f}\" y=\"{4:.1f}\" text-anchor=\"{5}\">{6}</text>",
        kScatterLeft, chart_.width - kScatterRight, at, is_taken ? box.right - 4 : box.left + 4,
        at - 5, is_taken ? "end" : "start", xml_escape(chart_.limit_name));
  }

  Box around(const ScatterPoint& point) const {
    const double x = x_.pixel(point.x), y = y_.pixel(point.y);
    return {x - kRadius - 1, y - kRadius - 1, x + kRadius + 1, y + kRadius + 1};
  }

  // Right, left, above, below, and the corners.
  std::array<Place, 8> places(const ScatterPoint& point, const std::string& label) const {
    const double x = x_.pixel(point.x), y = y_.pixel(point.y);
    const double width = kLetter * static_cast<double>(display_width(label));
    const auto place = [&](double dx, double dy, const char* anchor) {
      const double at = x + dx, base = y + dy;
      const double left = anchor[0] == 's' ? at : anchor[0] == 'e' ? at - width : at - width / 2;
      return Place{at, base, anchor, {left, base - kLine + 3, left + width, base + 3}};
    };
    return {place(10, 4, "start"),  place(-10, 4, "end"),  place(0, -10, "middle"),
            place(0, 20, "middle"), place(8, -8, "start"), place(8, 17, "start"),
            place(-8, -8, "end"),   place(-8, 17, "end")};
  }

  bool has_room(const Place& place) const {
    return place.box.left >= kScatterLeft && place.box.right <= chart_.width &&
           place.box.top >= kScatterTop - 12 &&
           place.box.bottom <= chart_.height - kScatterBottom &&
           std::none_of(taken_.begin(), taken_.end(),
                        [&](const Box& box) { return box.overlaps(place.box); });
  }

  // Its name where that covers nothing, else its number; should even that find no room, none: the
  // hint and the table have it.
  std::string name_of(size_t index) {
    const ScatterPoint& point = chart_.points[index];
    const std::string number = fmt::format("{}", index + 1);
    for (const std::string& label : {point.label, number}) {
      if (chart_.all_numbered && label != number) continue;
      for (const Place& place : places(point, label))
        if (has_room(place)) return text_at(place, index, label);
    }
    return "";
  }

  std::string text_at(const Place& place, size_t index, const std::string& label) {
    taken_.push_back(place.box);
    if (label != chart_.points[index].label) numbered_.push_back(index);
    return fmt::format(
        "<text class=\"halo\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>", place.x,
        place.y, place.anchor, xml_escape(label));
  }

  std::string mark(const ScatterPoint& point) const {
    const double x = x_.pixel(point.x), y = y_.pixel(point.y);
    const std::string shape =
        point.is_cross
            ? fmt::format("<path class=\"cross\" d=\"M{:.1f} {:.1f}l10 10m0 -10l-10 10\"/>", x - 5,
                          y - 5)
            : fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\"/>", x, y, kRadius);
    const std::string inside = fmt::format("<g class=\"{}\"><title>{}</title>{}</g>",
                                           point.colour_class, xml_escape(point.hint), shape);
    if (point.link.empty()) return inside;
    return fmt::format("<a href=\"{}\" aria-label=\"{}\">{}</a>", xml_escape(point.link),
                       xml_escape(point.hint), inside);
  }

  const ScatterChart& chart_;
  Axis x_, y_;
  std::vector<Box> taken_;
  std::vector<size_t> numbered_;
};

}  // namespace

std::string scatter_chart(const ScatterChart& chart, std::vector<size_t>* numbered) {
  ScatterDrawing drawing(chart);
  std::string out = drawing.svg();
  if (numbered != nullptr) *numbered = drawing.numbered();
  return out;
}

}  // namespace snug::report
