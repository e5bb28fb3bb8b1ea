// A terminal's stream as lines for a log: colours go, and of a line that was drawn over and over
// only what was last on the screen is kept.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace snug::launch {

class PlainLines {
 public:
  // The lines that are whole now.
  std::string take(std::string_view bytes);
  // What is left without an end.
  std::string rest();

 private:
  std::string line_;
};

}  // namespace snug::launch
