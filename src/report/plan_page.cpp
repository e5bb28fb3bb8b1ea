// SPDX-License-Identifier: Apache-2.0
#include "report/plan_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/bytes.h"
#include "report/assets.h"
#include "report/charts/svg_chart.h"

namespace snug::report {
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
  return out + "</table></div></details>";
}

}  // namespace

std::string plan_html(const PlanPage& page) {
  std::string out = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/>"
      "<meta name=\"viewport\" "
      "content=\"width=device-width\"/><title>{}</title><style>{}{}</style></head>"
      "<body><h1>{}</h1><pre class=\"lines\">",
      xml_escape(page.title), assets::plan_css, assets::timeline_css, xml_escape(page.title));
  for (const std::string& line : page.lines) out += xml_escape(line) + "\n";
  out += "</pre><h2>Memory over one step</h2>" +
         timeline_chart({.categories = page.categories,
                         .moments = page.moments,
                         .limit_bytes = page.limit_bytes}) +
         legend(page);
  if (!page.beside.empty())
    out += "<h2>Compared with LitGPT</h2><pre>" + xml_escape(page.beside) + "</pre>";
  if (!page.fit.above.empty())
    out += "<h2>What would fit</h2><pre class=\"lines\">" + xml_escape(page.fit.above) + "</pre>" +
           "<div class=\"fit\">" + page.fit.table + "</div><pre class=\"lines\">" +
           xml_escape(page.fit.below) + "</pre>";
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
