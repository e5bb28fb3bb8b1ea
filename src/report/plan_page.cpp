// SPDX-License-Identifier: Apache-2.0
#include "report/plan_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/bytes.h"
#include "report/svg_chart.h"

namespace snug::report {
namespace {

constexpr double kWidth = 960, kHeight = 340, kLeft = 70, kBottom = 24, kTop = 12;

constexpr std::string_view kStyle = R"(<style>
:root{--bg:#fff;--fg:#1b1f24;--mu:#5b6570;--line:#d5dbe1;--k0:#3b6fb6;--k1:#d9822b;--k2:#7a5ea8;--k3:#3f9b6c;
--k4:#b0b7bf;--k5:#c2504d;--k6:#8a7a5c;--k7:#4aa3b5}
@media(prefers-color-scheme:dark){:root{--bg:#14181d;--fg:#e6e9ed;--mu:#9aa5b1;--line:#333b44;--k0:#6f9fe0;
--k1:#eaa35c;--k2:#a78fd6;--k3:#6cc295;--k4:#6b7480;--k5:#e07f7c;--k6:#b3a283;--k7:#74c6d6}}
body{font:16px/1.5 system-ui,sans-serif;background:var(--bg);color:var(--fg);max-width:62rem;margin:2rem auto;
padding:0 1rem}
svg{width:100%;height:auto}text{fill:var(--mu);font-size:12px}.limit{stroke:var(--fg);stroke-width:2;stroke-dasharray:6 4}
.limit-name{fill:var(--fg);font-weight:600;paint-order:stroke;stroke:var(--bg);stroke-width:4px}
.hit{fill:transparent}.hit:hover{fill:var(--fg);fill-opacity:.12}
.key{display:inline-block;margin-right:1rem}.key i{display:inline-block;width:.8em;height:.8em;margin-right:.4em}
pre{overflow-x:auto;font-size:14px}table{border-collapse:collapse;font-size:14px}
td,th{padding:.15rem .7rem;text-align:right;border-bottom:1px solid var(--line)}
td:first-child,th:first-child{text-align:left}
</style>)";

int64_t total(const PlanMoment& moment) {
  return std::accumulate(moment.by_category.begin(), moment.by_category.end(), int64_t{0});
}

int64_t largest(const PlanPage& page) {
  int64_t most = 1;
  for (const PlanMoment& moment : page.moments) most = std::max(most, total(moment));
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

class Chart {
 public:
  explicit Chart(const PlanPage& page) : page_(page) {
    const int64_t most = largest(page);
    // A limit far above the curve would flatten it.
    top_ = static_cast<double>(shows_limit() ? std::max(most, page.limit_bytes) : most) * 1.05;
  }

  std::string svg() const {
    std::string out = fmt::format(
        "<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"memory over one step, by category\">",
        kWidth, kHeight);
    const auto [unit, word] = axis_unit(top_);
    const double step = tick_step(top_ / unit);
    for (int i = 0; i * step * unit <= top_; ++i) {
      const double height = y(i * step * unit);
      out += fmt::format(
          "<line x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"var(--line)\"/>"
          "<text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{:g} {}</text>",
          kLeft, kWidth, height, height, kLeft - 6, height + 4, i * step, word);
    }
    std::vector<double> base(page_.moments.size(), 0);
    for (size_t c = 0; c < page_.categories.size(); ++c) out += band(c, base);
    if (shows_limit())
      out += fmt::format(
          "<line class=\"limit\" x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>"
          "<text class=\"limit-name\" x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">the device has {}"
          "</text>",
          kLeft, kWidth, y(static_cast<double>(page_.limit_bytes)),
          y(static_cast<double>(page_.limit_bytes)), kWidth - 4,
          y(static_cast<double>(page_.limit_bytes)) - 6, format_bytes(page_.limit_bytes));
    out += phases();
    for (size_t i = 0; i < page_.moments.size(); ++i) out += hit(i);
    return out + "</svg>";
  }

 private:
  bool shows_limit() const {
    return page_.limit_bytes > 0 && page_.limit_bytes < 3 * largest(page_);
  }
  double x(size_t i) const {
    return kLeft + (kWidth - kLeft) * static_cast<double>(i) /
                       static_cast<double>(std::max<size_t>(1, page_.moments.size()));
  }
  double y(double bytes) const {
    return kHeight - kBottom - (kHeight - kBottom - kTop) * bytes / top_;
  }

  // Steps rather than slopes: memory holds between two moments.
  std::string band(size_t category, std::vector<double>& base) const {
    std::string upper, lower;
    for (size_t i = 0; i < page_.moments.size(); ++i) {
      const double from = base[i];
      const double to = from + static_cast<double>(page_.moments[i].by_category[category]);
      upper += fmt::format("{:.1f},{:.1f} {:.1f},{:.1f} ", x(i), y(to), x(i + 1), y(to));
      lower = fmt::format("{:.1f},{:.1f} {:.1f},{:.1f} ", x(i + 1), y(from), x(i), y(from)) + lower;
      base[i] = to;
    }
    return fmt::format("<polygon fill=\"var(--k{})\" points=\"{}{}\"/>", category % 8, upper,
                       lower);
  }

  // Where each phase begins, with its name; those without room for a name are left out.
  std::string phases() const {
    std::string out;
    const size_t count = page_.moments.size();
    for (size_t from = 0, to = 0; from < count; from = to) {
      const std::string& phase = page_.moments[from].phase;
      while (to < count && page_.moments[to].phase == phase) ++to;
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
    const PlanMoment& moment = page_.moments[i];
    std::string text = moment.label + ": " + format_bytes(total(moment));
    for (size_t c = 0; c < page_.categories.size(); ++c)
      if (moment.by_category[c] > 0)
        text += fmt::format("\n{} {}", page_.categories[c], format_bytes(moment.by_category[c]));
    return fmt::format(
        "<rect class=\"hit\" x=\"{:.1f}\" y=\"{}\" width=\"{:.2f}\" height=\"{}\"><title>{}</title>"
        "</rect>",
        x(i), kTop, x(i + 1) - x(i), kHeight - kBottom - kTop, xml_escape(text));
  }

  const PlanPage& page_;
  double top_ = 1;
};

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
  std::string out = "<details><summary>Every moment</summary><table><tr><th>where</th><th>all</th>";
  for (const std::string& category : page.categories)
    out += fmt::format("<th>{}</th>", xml_escape(category));
  out += "</tr>";
  for (const PlanMoment& moment : page.moments) {
    out += fmt::format("<tr><td>{}</td><td>{}</td>", xml_escape(moment.label),
                       format_bytes(total(moment)));
    for (const int64_t bytes : moment.by_category)
      out += "<td>" + (bytes == 0 ? "–" : format_bytes(bytes)) + "</td>";
    out += "</tr>";
  }
  return out + "</table></details>";
}

}  // namespace

std::string plan_html(const PlanPage& page) {
  std::string out = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/>"
      "<meta name=\"viewport\" content=\"width=device-width\"/><title>{}</title>{}</head><body>"
      "<h1>{}</h1><pre>",
      xml_escape(page.title), kStyle, xml_escape(page.title));
  for (const std::string& line : page.lines) out += xml_escape(line) + "\n";
  out += "</pre><h2>Memory over one step</h2>" + Chart(page).svg() + legend(page);
  if (!page.beside.empty())
    out += "<h2>Beside LitGPT</h2><pre>" + xml_escape(page.beside) + "</pre>";
  if (!page.table.empty())
    out += "<h2>What would fit</h2><pre>" + xml_escape(page.table) + "</pre>";
  return out + table(page) + "</body></html>\n";
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
