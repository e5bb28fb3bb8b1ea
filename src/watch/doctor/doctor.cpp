// SPDX-License-Identifier: Apache-2.0
#include "watch/doctor/doctor.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

#include "base/terminal.h"
#include "base/text.h"
#include "report/text_width.h"
#include "watch/doctor/findings.h"

namespace snug::doctor {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kSubjectColumns = 14;
constexpr size_t kFewestColumns = 20;  // beside the subjects, however narrow the terminal is

std::string sign(Level level, const TextStyle& style) {
  static constexpr const char* kSigns[] = {"✓", "!", "✗"};
  static constexpr const char* kWords[] = {"ok     ", "note   ", "MISSING"};
  static constexpr const char* kColours[] = {"32", "33", "1;31"};
  const auto i = static_cast<size_t>(level);
  const std::string text = style.unicode ? kSigns[i] : kWords[i];
  return style.colours ? fmt::format("\x1b[{}m{}\x1b[0m", kColours[i], text) : text;
}

std::string built_with(const Facts& facts) {
  return fmt::format("snug {}, libtorch {}, {} CUDA; {}{}", facts.snug_version, facts.torch_version,
                     facts.has_cuda ? "with" : "without", facts.system,
                     facts.in_container ? ", in a container" : "");
}

size_t count_of(const std::vector<Finding>& findings, Level level) {
  return static_cast<size_t>(std::ranges::count(findings, level, &Finding::level));
}

std::string verdict(const std::vector<Finding>& findings) {
  const size_t missing = count_of(findings, Level::Missing),
               notes = count_of(findings, Level::Note);
  const std::string worth =
      notes == 0 ? "" : fmt::format(", {} note{}", notes, notes == 1 ? "" : "s");
  if (missing == 0) return "Nothing is missing" + worth + ".";
  return fmt::format("{} {} missing{}.", missing, missing == 1 ? "thing is" : "things are", worth);
}

// Lines after the first begin below it.
std::string beside_subject(const std::string& words, const std::string& indent, size_t columns) {
  std::string text;
  for (const std::string& line : report::wrapped(printable(words), columns))
    text += (text.empty() ? "" : indent) + line + "\n";
  return text;
}

}  // namespace

std::string findings_text(const Facts& facts, const std::vector<Finding>& findings,
                          const TextStyle& style, size_t columns) {
  const std::string indent((style.unicode ? 2 : 8) + kSubjectColumns, ' ');
  const size_t beside =
      columns == 0 ? 0 : std::max(columns, indent.size() + kFewestColumns) - indent.size();
  std::string text;
  const size_t across = columns == 0 ? 0 : std::max(columns, kFewestColumns);
  for (const std::string& line : report::wrapped(built_with(facts), across)) text += line + "\n";
  text += "\n";
  for (const Finding& f : findings) {
    text += fmt::format("{} {:<{}}", sign(f.level, style), f.subject, kSubjectColumns);
    text += beside_subject(f.found, indent, beside);
    if (!f.why.empty()) text += indent + beside_subject(f.why, indent, beside);
    if (!f.mend.empty())
      text += fmt::format("{}{} {}\n", indent, style.unicode ? "→" : "->", printable(f.mend));
  }
  return text + "\n" + verdict(findings) + "\n";
}

std::string findings_json(const Facts& facts, const std::vector<Finding>& findings) {
  Json list = Json::array();
  for (const Finding& f : findings)
    list.push_back({{"level", name(f.level)},
                    {"subject", f.subject},
                    {"found", f.found},
                    {"why", f.why},
                    {"mend", f.mend}});
  const Json json{{"snug", facts.snug_version},
                  {"libtorch", facts.torch_version},
                  {"cuda", facts.has_cuda},
                  {"system", facts.system},
                  {"container", facts.in_container},
                  {"findings", std::move(list)},
                  {"missing", count_of(findings, Level::Missing)}};
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

namespace {

// A pipe gets words instead of symbols.
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
