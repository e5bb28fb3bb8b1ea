// From facts to findings: what is well, what is worth knowing, what is missing, and the command
// that mends it. Pure, so that machines that nobody here has can be judged too.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "base/terminal.h"
#include "watch/doctor/facts.h"

namespace snug::doctor {

enum class Level { Ok, Note, Missing };
const char* name(Level level);

struct Finding {
  Level level = Level::Ok;
  std::string subject;  // "driver", "/dev/shm", …
  std::string found;
  std::string why;   // why it matters; of notes and what is missing
  std::string mend;  // a command, or words where there is none
};

std::vector<Finding> findings(const Facts& facts);

// 2 where something is missing, else 0.
int exit_code(const std::vector<Finding>& findings);

// Symbols, or words where the style is without unicode. What mends is left in one line, so that it
// can be copied; the rest is at most so many columns wide, 0: as wide as it is.
std::string findings_text(const Facts& facts, const std::vector<Finding>& findings,
                          const TextStyle& style, size_t columns = 0);
std::string findings_json(const Facts& facts, const std::vector<Finding>& findings);

}  // namespace snug::doctor
