// SPDX-License-Identifier: Apache-2.0
#include "doctor/doctor.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "doctor/findings.h"

namespace snug::doctor {
namespace {

// Symbols are for eyes: in a pipe there are words.
TextStyle style_of_output() {
  const bool is_terminal = ::isatty(STDOUT_FILENO) == 1;
  const char* plain = std::getenv("NO_COLOR");
  TextStyle style{.unicode = false, .colours = is_terminal && (plain == nullptr || *plain == '\0')};
  for (const char* variable : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* value = std::getenv(variable);
    if (value == nullptr || *value == '\0') continue;
    const std::string text = value;
    style.unicode =
        is_terminal && (text.find("UTF-8") != text.npos || text.find("utf8") != text.npos);
    break;
  }
  return style;
}

}  // namespace

int doctor(const config::DoctorOptions& options) {
  const Facts facts = gather(options.out_dir);
  const std::vector<Finding> all = findings(facts);
  const std::string text =
      options.json ? findings_json(facts, all) : findings_text(facts, all, style_of_output());
  std::fputs(text.c_str(), stdout);
  return exit_code(all);
}

}  // namespace snug::doctor
