// Builds an HTML page: one file that loads nothing from the network, runs no script but the one
// given to set_script(), and escapes all text, whatever a model, a recipe or a log contains.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

namespace snug::report {

// Text for XML and HTML, quotes included. Characters that XML forbids become spaces, bad bytes
// U+FFFD.
std::string xml_escape(std::string_view text);

// Text in an element, escaped: element("p class=\"mu\"", "1 < 2").
std::string element(std::string_view tag, std::string_view text);

// Two versions of a drawing, of which CSS shows one (classes wide and small-only): wide screens and
// paper, or a phone. Empty for two empty ones.
std::string either(const std::string& wide, const std::string& small);
constexpr double kPhoneWidth = 320;  // of the small one, in pixels

class HtmlPage {
 public:
  // `styles`: CSS, one after the other.
  HtmlPage(std::string_view title, std::initializer_list<std::string_view> styles);

  HtmlPage& add(std::string_view html);  // not escaped
  // A heading with this id for links, and the HTML below it.
  HtmlPage& add_section(std::string_view heading, std::string_view html,
                        std::string_view anchor = {});
  // The page's only script, placed at its end, with its SHA-256 in base64. It reads `data` (JSON)
  // from the element with this id.
  void set_script(std::string_view script, std::string_view hash, std::string_view id,
                  std::string_view data);

  std::string html() const;

 private:
  std::string title_, styles_, body_, scripts_;
  std::string may_run_ = "'none'";
};

}  // namespace snug::report

// The files of assets/, embedded when the program is built (cmake/assets.cmake).
namespace snug::report::assets {

extern const std::string_view chart_css, lab_css, plan_css, run_css, timeline_css;
extern const std::string_view lab_js;
extern const std::string_view lab_js_hash;  // its SHA-256 in base64

}  // namespace snug::report::assets
