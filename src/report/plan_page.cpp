// SPDX-License-Identifier: Apache-2.0
#include "report/plan_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/bytes.h"
#include "report/charts/svg_chart.h"

namespace snug::report {
namespace {

constexpr std::string_view kStyle = R"(
:root{--bg:#fff;--paper:#fff;--over:#1b1f24;--fg:#1b1f24;--mu:#5b6570;--line:#d5dbe1;--k0:#3b6fb6;--k1:#d9822b;--k2:#7a5ea8;--k3:#3f9b6c;
--k4:#b0b7bf;--k5:#c2504d;--k6:#8a7a5c;--k7:#4aa3b5}
@media(prefers-color-scheme:dark){:root{--bg:#14181d;--paper:#14181d;--over:#e6e9ed;--fg:#e6e9ed;--mu:#9aa5b1;--line:#333b44;--k0:#6f9fe0;
--k1:#eaa35c;--k2:#a78fd6;--k3:#6cc295;--k4:#6b7480;--k5:#e07f7c;--k6:#b3a283;--k7:#74c6d6}}
body{font:16px/1.5 system-ui,sans-serif;background:var(--bg);color:var(--fg);max-width:62rem;margin:2rem auto;
padding:0 1rem}
h1{font-size:1.6rem;line-height:1.25;overflow-wrap:anywhere}
.key{display:inline-block;margin-right:1rem}.key i{display:inline-block;width:.8em;height:.8em;margin-right:.4em}
pre{overflow-x:auto;font-size:14px}pre.lines{white-space:pre-wrap;overflow-wrap:anywhere}.scroll{overflow-x:auto}table{border-collapse:collapse;font-size:14px}
td,th{padding:.15rem .7rem;text-align:right;border-bottom:1px solid var(--line)}
td:first-child,th:first-child{text-align:left}
.fit td,.fit th{text-align:left;vertical-align:top;white-space:nowrap}.fit td:last-child{white-space:normal;overflow-wrap:anywhere;min-width:8rem}
@media(max-width:40rem){.fit td,.fit th{white-space:normal;padding:.15rem .25rem;font-size:12px}.fit td:last-child{min-width:0}}
)";

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
      xml_escape(page.title), kStyle, timeline_style(), xml_escape(page.title));
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
