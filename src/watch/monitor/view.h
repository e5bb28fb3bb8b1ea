// The picture of a look, as lines of text: a pure function, so that what a terminal of any size
// shows can be tested without one.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "watch/monitor/bars.h"
#include "watch/monitor/look.h"

namespace snug::monitor {

struct ViewOptions {
  int columns = 80;
  int rows = 0;  // 0: as many as it takes
  Style style;
  bool keys = false;  // a last line that says which keys there are
  bool help = false;  // what the words mean, in place of the processes
};

// No line is wider than the columns, and there are no more of them than the rows: what matters
// least is left out first.
std::vector<std::string> view(const Look& look, const ViewOptions& options);

// One line of the same, for a pipe: "training, step 12/40, loss 2.314, …"
std::string plain_line(const Look& look);

}  // namespace snug::monitor
