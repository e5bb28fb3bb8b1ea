// SPDX-License-Identifier: Apache-2.0
#include "watch/doctor/doctor.h"

#include <unistd.h>

#include <cstdio>
#include <string>

#include "base/terminal.h"
#include "watch/doctor/findings.h"

namespace snug::doctor {
namespace {

// Symbols are for eyes: in a pipe there are words.
std::string text_for_output(const Facts& facts, const std::vector<Finding>& all) {
  TextStyle style = style_of(STDOUT_FILENO);
  const bool is_terminal = ::isatty(STDOUT_FILENO) == 1;
  if (!is_terminal) style.unicode = false;
  const int columns = is_terminal ? terminal_size(STDOUT_FILENO).columns : 0;
  return findings_text(facts, all, style, static_cast<size_t>(columns));
}

}  // namespace

int doctor(const recipe::DoctorOptions& options) {
  const Facts facts = gather(options.out_dir);
  const std::vector<Finding> all = findings(facts);
  const std::string text = options.json ? findings_json(facts, all) : text_for_output(facts, all);
  std::fputs(text.c_str(), stdout);
  return exit_code(all);
}

}  // namespace snug::doctor
