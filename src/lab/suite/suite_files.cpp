// Where suites are found, and which of their rows are meant.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fnmatch.h>

#include <algorithm>
#include <set>
#include <sstream>
#include <string>
#include <system_error>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "lab/suite/suite.h"
#include "recipe/options/rows.h"

namespace snug::lab {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) {
    const size_t begin = part.find_first_not_of(' ');
    if (begin != std::string::npos)
      parts.push_back(part.substr(begin, part.find_last_not_of(' ') - begin + 1));
  }
  return parts;
}

std::vector<std::string> names_of(const std::vector<fs::path>& files) {
  std::vector<std::string> names;
  for (const fs::path& file : files) names.push_back(file.stem().string());
  return names;
}

// The patterns of one choice, each with a note of whether anything has matched it.
class Patterns {
 public:
  explicit Patterns(const std::string& text) : patterns_(split(text, ',')) {}

  bool matches(const std::string& id) {
    bool any = patterns_.empty();
    for (const std::string& pattern : patterns_)
      if (::fnmatch(pattern.c_str(), id.c_str(), 0) == 0) {
        used_.insert(pattern);
        any = true;
      }
    return any;
  }

  std::vector<std::string> used() const { return parted(true); }
  std::vector<std::string> unused() const { return parted(false); }

 private:
  std::vector<std::string> parted(bool is_used) const {
    std::vector<std::string> out;
    for (const std::string& pattern : patterns_)
      if (used_.contains(pattern) == is_used) out.push_back(pattern);
    return out;
  }

  std::vector<std::string> patterns_;
  std::set<std::string> used_;
};

std::vector<std::string> ids_of(const Suite& suite) {
  std::vector<std::string> ids;
  for (const Row& row : suite.rows) ids.push_back(row.id);
  for (const Group& group : suite.groups) ids.push_back(group.id);
  return ids;
}

// `whose`: "suite litgpt-single has"; `suites`: as after snug lab list.
[[noreturn]] void refuse_pattern(const std::string& whose, const std::string& pattern,
                                 const std::vector<std::string>& ids, const std::string& suites) {
  const std::string near = nearest_name(pattern, ids);
  throw UserError("{} no row {}{}", whose, pattern,
                  near.empty() ? fmt::format("; snug lab list {} shows them", suites)
                               : fmt::format("; did you mean {}?", near));
}

struct Choice {
  std::vector<const Row*> rows;
  std::vector<const Group*> searches;
};

Choice choose(const Suite& suite, const std::string& text) {
  Patterns patterns(text);
  Choice choice;
  std::set<std::string> sweeps;
  for (const Group& group : suite.groups) {
    if (!patterns.matches(group.id)) continue;
    if (group.kind == Group::Kind::Search) choice.searches.push_back(&group);
    if (group.kind == Group::Kind::Sweep) sweeps.insert(group.id);
  }
  for (const Row& row : suite.rows)
    if (patterns.matches(row.id) || sweeps.contains(row.group)) choice.rows.push_back(&row);
  for (const std::string& pattern : patterns.unused())
    refuse_pattern(fmt::format("suite {} has", suite.name), pattern, ids_of(suite), suite.name);
  return choice;
}

}  // namespace

std::vector<fs::path> suite_files() { return recipe::suite_files(); }

fs::path find_suite(const std::string& name_or_path) {
  const std::vector<fs::path> files = suite_files();
  for (const fs::path& file : files)
    if (file.stem() == name_or_path) return file;
  std::error_code error;
  const bool is_path =
      name_or_path.ends_with(".yaml") || name_or_path.find('/') != std::string::npos;
  if (fs::is_regular_file(name_or_path, error)) return name_or_path;
  if (fs::is_directory(name_or_path, error))
    throw UserError(
        "{} is a directory; a suite is a file, NAME.yaml (snug lab report takes the folder of a "
        "run)",
        name_or_path);
  if (is_path) throw UserError("{}: no such file", name_or_path);
  const std::vector<std::string> names = names_of(files);
  if (names.empty())
    throw UserError(
        "no suite {}: there are no suites here; run snug where recipes/lab is, or set "
        "SNUG_SUITES=FOLDER",
        name_or_path);
  const std::string near = nearest_name(name_or_path, names);
  throw UserError("no suite {}; the suites are {}{}", name_or_path, fmt::join(names, ", "),
                  near.empty() ? "" : fmt::format("; did you mean {}?", near));
}

std::string patterns_of(const Suite& suite, const std::string& text) {
  Patterns patterns(text);
  for (const std::string& id : ids_of(suite)) patterns.matches(id);
  return fmt::format("{}", fmt::join(patterns.used(), ","));
}

void check_patterns(const std::vector<Suite>& suites, const std::string& text) {
  Patterns patterns(text);
  std::vector<std::string> ids, names;
  for (const Suite& suite : suites) {
    names.push_back(suite.name);
    for (std::string& id : ids_of(suite)) ids.push_back(std::move(id));
  }
  for (const std::string& id : ids) patterns.matches(id);
  for (const std::string& pattern : patterns.unused())
    refuse_pattern(suites.size() == 1 ? fmt::format("suite {} has", names.front())
                                      : fmt::format("none of {} has", fmt::join(names, ", ")),
                   pattern, ids, fmt::format("{}", fmt::join(names, " ")));
}

std::vector<const Row*> chosen_rows(const Suite& suite, const std::string& patterns) {
  return choose(suite, patterns).rows;
}

std::vector<const Group*> chosen_searches(const Suite& suite, const std::string& patterns) {
  return choose(suite, patterns).searches;
}

}  // namespace snug::lab
