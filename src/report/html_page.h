// The builder of every page: one file that asks the network for nothing, in which no script runs
// but the one that it names, and text stays text whatever a model, a recipe or a log holds.
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

class HtmlPage {
 public:
  // `styles`: CSS, one after the other.
  HtmlPage(std::string_view title, std::initializer_list<std::string_view> styles);

  // What is HTML already.
  HtmlPage& add(std::string_view html);
  // A heading, to which links lead by `anchor`, and what stands under it.
  HtmlPage& add_section(std::string_view heading, std::string_view html,
                        std::string_view anchor = {});
  // The only script of the page, at its end, with its SHA-256 in base64. It finds `data`, JSON, in
  // the element of this id.
  void set_script(std::string_view script, std::string_view hash, std::string_view id,
                  std::string_view data);

  std::string html() const;

 private:
  std::string title_, styles_, body_, scripts_;
  std::string may_run_ = "'none'";
};

}  // namespace snug::report
