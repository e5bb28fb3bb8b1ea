// SPDX-License-Identifier: Apache-2.0
#include "lab/page/page.h"

#include <fmt/format.h>

#include "base/bytes.h"
#include "report/html_page.h"

namespace snug::lab {

using report::xml_escape;

std::string isolated(const std::string& text) { return "<bdi>" + xml_escape(text) + "</bdi>"; }

std::string scrolling(const std::string& name, const std::string& inside,
                      const std::string& style) {
  return fmt::format(
      "<div class=\"scroll{}\" tabindex=\"0\" role=\"region\" aria-label=\"{}\">{}</div>",
      style.empty() ? "" : " " + style, xml_escape(name), inside);
}

std::string either(const std::string& wide, const std::string& small) {
  return fmt::format("<div class=\"wide\">{}</div><div class=\"small-only\">{}</div>", wide, small);
}

std::string figure(const std::string& title, const std::string& aside, const std::string& inside) {
  return fmt::format("<figure><figcaption>{}{}</figcaption>{}</figure>\n", xml_escape(title),
                     aside.empty() ? "" : fmt::format(" <span>{}</span>", xml_escape(aside)),
                     inside);
}

std::string key_entry(const std::string& colour, const std::string& words) {
  return fmt::format("<li><i style=\"background:{}\"></i>{}</li>", colour, xml_escape(words));
}

std::string colour_of(size_t index) { return fmt::format("var(--k{})", index % 8); }

bool is_visible(int64_t bytes, double full) { return static_cast<double>(bytes) > 0.004 * full; }

bool is_far_above(double limit, double largest) { return limit > 3 * largest; }

ByteUnit chart_unit(double largest_bytes) {
  if (largest_bytes >= static_cast<double>(kGiB)) return {"GiB", static_cast<double>(kGiB)};
  if (largest_bytes >= static_cast<double>(kMiB)) return {"MiB", static_cast<double>(kMiB)};
  return {"KiB", static_cast<double>(kKiB)};
}

}  // namespace snug::lab
