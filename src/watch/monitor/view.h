// Renders a look as lines of text. Pure, so that the picture can be tested for any terminal size
// without a terminal.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "base/terminal.h"
#include "watch/monitor/look.h"

namespace snug::monitor {

struct ViewOptions {
  int columns = 80;
  int rows = 0;  // 0: no limit
  TextStyle style;
  bool keys = false;  // ends with a line that lists the keys
  bool help = false;  // explains the words instead of showing the processes
};

// At most `rows` lines of at most `columns` columns; the least important sections are left out
// first.
std::vector<std::string> view(const Look& look, const ViewOptions& options);

// The same in one line, for a pipe: "training, step 12/40, loss 2.314, …"
std::string plain_line(const Look& look);

}  // namespace snug::monitor
