// SPDX-License-Identifier: Apache-2.0
#include "report/html_page.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"

namespace snug::report {
namespace {

// U+FFFE and U+FFFF, as UTF-8, are valid text but no XML.
bool is_noncharacter(std::string_view rest) {
  return rest.starts_with("\xef\xbf\xbe") || rest.starts_with("\xef\xbf\xbf");
}

}  // namespace

std::string xml_escape(std::string_view text) {
  std::string out;
  for (size_t start = 0; start <= text.size();) {
    const size_t end = std::min(text.find('\n', start), text.size());
    const std::string line = printable(text.substr(start, end - start));
    for (size_t i = 0; i < line.size(); ++i) {
      const char c = line[i];
      if (is_noncharacter(std::string_view(line).substr(i))) {
        out += "\xef\xbf\xbd";
        i += 2;
      } else if (c == '&' || c == '<' || c == '>' || c == '"' || c == '\'') {
        out += fmt::format("&#{};", static_cast<int>(c));
      } else {
        out += c;
      }
    }
    if (end < text.size()) out += '\n';
    start = end + 1;
  }
  return out;
}

std::string element(std::string_view tag, std::string_view text) {
  return fmt::format("<{}>{}</{}>", tag, xml_escape(text), tag.substr(0, tag.find(' ')));
}

HtmlPage::HtmlPage(std::string_view title, std::initializer_list<std::string_view> styles)
    : title_(title) {
  for (const std::string_view style : styles) styles_ += style;
}

HtmlPage& HtmlPage::add(std::string_view html) {
  body_ += html;
  return *this;
}

HtmlPage& HtmlPage::add_section(std::string_view heading, std::string_view html,
                                std::string_view anchor) {
  const std::string id = anchor.empty() ? "" : fmt::format(" id=\"{}\"", xml_escape(anchor));
  return add(element("h2" + id, heading)).add(html);
}

void HtmlPage::set_script(std::string_view script, std::string_view hash, std::string_view id,
                          std::string_view data) {
  may_run_ = fmt::format("'sha256-{}'", hash);
  scripts_ = fmt::format("<script type=\"application/json\" id=\"{}\">", xml_escape(id));
  // Data in a script element ends at "</": no "<" is left in it.
  for (const char c : data)
    if (c == '<')
      scripts_ += "\\u003c";
    else
      scripts_ += c;
  scripts_ += fmt::format("</script><script>{}</script>", script);
}

std::string either(const std::string& wide, const std::string& small) {
  if (wide.empty() && small.empty()) return {};
  return fmt::format("<div class=\"wide\">{}</div><div class=\"small-only\">{}</div>", wide, small);
}

std::string HtmlPage::html() const {
  return fmt::format(
      "<!DOCTYPE html>\n<html xmlns=\"http://www.w3.org/1999/xhtml\" lang=\"en\"><head>"
      "<meta charset=\"utf-8\"/>"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
      "style-src 'unsafe-inline'; script-src {}; img-src data:; base-uri 'none'; "
      "form-action 'none'\"/>"
      "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"/>"
      "<meta name=\"color-scheme\" content=\"light dark\"/><link rel=\"icon\" href=\"data:,\"/>"
      "{}<style>{}</style></head>\n<body>{}{}</body></html>\n",
      may_run_, element("title", title_), styles_, body_, scripts_);
}

}  // namespace snug::report
