// How a row's process ended, in words.
// SPDX-License-Identifier: Apache-2.0
#include "lab/collect.h"

#include <fmt/format.h>

#include <cstring>

#include "lab/report/figures.h"

namespace snug::lab {
namespace {

constexpr int kOutOfMemoryCode = 3;

std::string signal_text(int number) {
  const char* abbreviation = ::sigabbrev_np(number);
  const char* description = ::sigdescr_np(number);
  return fmt::format("signal {} (SIG{}, {})", number, abbreviation == nullptr ? "?" : abbreviation,
                     description == nullptr ? "?" : description);
}

}  // namespace

// The program's own sentence, without its name in front.
std::string sentence_of(const ProcessEnd& end) {
  std::string line = first_line(end.last_words);
  if (line.starts_with("snug: ")) line.erase(0, 6);
  return line;
}

bool speaks_of_full_disk(const std::string& text) {
  return text.find("No space left on device") != text.npos ||
         text.find("Disk quota exceeded") != text.npos || text.find("File too large") != text.npos;
}

void judge_end(const ProcessEnd& end, RowResult& result) {
  const std::string said = sentence_of(end);
  const std::string words = said.empty() ? "" : ": " + said;
  if (end.interrupted) {
    result.outcome = Outcome::Interrupted;
    result.reason = "stopped on request";
  } else if (end.timed_out) {
    result.outcome = Outcome::TimedOut;
    result.reason = fmt::format("stopped after {:.0f} s, the time limit of a row", end.seconds);
  } else if (end.killed_by_kernel_for_memory) {
    result.outcome = Outcome::OutOfMemory;
    result.reason = "the kernel killed it because the machine ran out of memory";
  } else if (end.signal != 0) {
    result.outcome = Outcome::Crashed;
    result.reason = fmt::format("killed by {}{}", signal_text(end.signal), words);
  } else if (end.exit_code == kOutOfMemoryCode) {
    result.outcome = Outcome::OutOfMemory;
    result.reason = said.empty() ? "out of memory" : said;
  } else if (end.exit_code == 0) {
    result.outcome = Outcome::Ok;
    result.reason.clear();
  } else {
    result.outcome = Outcome::Error;
    result.reason = said.empty() ? fmt::format("exit code {}", end.exit_code) : said;
    if (speaks_of_full_disk(end.last_words)) result.reason = "the disk is full: " + result.reason;
  }
}

}  // namespace snug::lab
