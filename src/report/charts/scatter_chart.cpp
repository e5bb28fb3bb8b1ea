// SPDX-License-Identifier: Apache-2.0
#include "report/charts/scatter_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "report/charts/chart_axis.h"
#include "report/html_page.h"
#include "report/text_width.h"

namespace snug::report {
namespace {

constexpr double kLeft = 56, kRight = 24, kTop = 30, kBottom = 44;
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
    x_.from = kLeft;
    x_.to = chart.width - kRight;
    y_.from = chart.height - kBottom;
    y_.to = kTop;
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
          kLeft, chart_.width - kRight, y_.pixel(tick), y_.pixel(tick), kLeft - 8,
          y_.pixel(tick) + 4, tick_text(tick));
    for (const double tick : ticks(x_, chart_.width < 600 ? 5 : 9))
      out +=
          fmt::format("<text class=\"mu\" x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                      x_.pixel(tick), chart_.height - kBottom + 18, tick_text(tick));
    return out + fmt::format(
                     "<text class=\"mu\" x=\"0\" y=\"14\">{}</text>"
                     "<text class=\"mu\" x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>",
                     xml_escape(chart_.y_label), chart_.width - kRight, chart_.height - 8,
                     xml_escape(chart_.x_label));
  }

  // Its name stands on the left, or on the right where a point is in the way.
  std::string limit() {
    if (chart_.limit <= 0) return "";
    const double at = y_.pixel(chart_.limit);
    const double width = kLetter * static_cast<double>(display_width(chart_.limit_name)) + 6;
    Box box{kLeft, at - kLine - 4, kLeft + width, at};
    const bool is_taken = std::any_of(
        chart_.points.begin(), chart_.points.end(),
        [&](const ScatterPoint& point) { return is_drawn(point) && around(point).overlaps(box); });
    if (is_taken) box = {chart_.width - kRight - width, box.top, chart_.width - kRight, box.bottom};
    taken_.push_back(box);
    return fmt::format(
        "<line class=\"limit\" x1=\"{0}\" x2=\"{1}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\"/>"
        "<text class=\"mu\" x=\"{3:.1f}\" y=\"{4:.1f}\" text-anchor=\"{5}\">{6}</text>",
        kLeft, chart_.width - kRight, at, is_taken ? box.right - 4 : box.left + 4, at - 5,
        is_taken ? "end" : "start", xml_escape(chart_.limit_name));
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
    return place.box.left >= kLeft && place.box.right <= chart_.width &&
           place.box.top >= kTop - 12 && place.box.bottom <= chart_.height - kBottom &&
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
