// Pieces of the report's page that several of its parts are made of.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace snug::lab {

// Text of a suite, row or log, whichever way it is written, among words that go from left to right.
std::string isolated(const std::string& text);

// A table or drawing that moves inside its own frame, which the keyboard can reach. `name` is said
// to those who cannot see it; `style`: more classes of the frame.
std::string scrolling(const std::string& name, const std::string& inside,
                      const std::string& style = "");

// One of two drawings of the same: one for a desk and for paper, one for a phone.
std::string either(const std::string& wide, const std::string& small);
constexpr double kPhoneWidth = 320;  // of the latter, so that it is shown as large as it is drawn

// A drawing under its title; `aside` stands behind that, smaller.
std::string figure(const std::string& title, const std::string& aside, const std::string& inside);

// What a colour of a drawing stands for.
std::string key_entry(const std::string& colour, const std::string& words);
// Of the page's eight, over and over.
std::string colour_of(size_t index);
// Whether bytes are wide enough in a drawing of `full` to be seen, and worth an entry in its key.
bool is_visible(int64_t bytes, double full);

// Whether a limit is so far above all values that drawing it would flatten them: then it is said in
// words.
bool is_far_above(double limit, double largest);

// What the axis of a chart is in, by its largest value.
struct ByteUnit {
  const char* name;
  double bytes;
};
ByteUnit chart_unit(double largest_bytes);

}  // namespace snug::lab
