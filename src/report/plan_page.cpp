// SPDX-License-Identifier: Apache-2.0
#include "report/plan_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/bytes.h"
#include "report/assets.h"
#include "report/html_page.h"

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
  for (const std::string& category : page.categories) out += element("th", category);
  out += "</tr>";
  for (const PlanMoment& moment : page.moments) {
    out += "<tr>" + element("td", moment.label) + element("td", format_bytes(total(moment)));
    for (const int64_t bytes : moment.by_category)
      out += element("td", bytes == 0 ? "–" : format_bytes(bytes));
    out += "</tr>";
  }
  return out + "</table></div></details>";
}

}  // namespace

std::string plan_html(const PlanPage& page) {
  HtmlPage html(page.title, {assets::plan_css, assets::timeline_css});
  std::string lines;
  for (const std::string& line : page.lines) lines += line + "\n";
  html.add(element("h1", page.title)).add(element("pre class=\"lines\"", lines));
  html.add_section("Memory over one step", timeline_chart({.categories = page.categories,
                                                           .moments = page.moments,
                                                           .limit_bytes = page.limit_bytes}) +
                                               legend(page));
  if (!page.beside.empty()) html.add_section("Compared with LitGPT", element("pre", page.beside));
  if (!page.fit.above.empty())
    html.add_section("What would fit", element("pre class=\"lines\"", page.fit.above) +
                                           "<div class=\"fit\">" + page.fit.table + "</div>" +
                                           element("pre class=\"lines\"", page.fit.below));
  return html.add(table(page)).html();
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
