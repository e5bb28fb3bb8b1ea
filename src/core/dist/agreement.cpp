// SPDX-License-Identifier: Apache-2.0
#include "core/dist/agreement.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <sstream>

#include "base/error.h"

namespace snug::dist {
namespace {

// The message to the other ranks: 0 and the result, or an exit code and the error's text.
std::string outcome_of(const std::function<std::string()>& work) {
  try {
    return "0" + work();
  } catch (const CommunicationError&) {
    throw;  // the others cannot be told
  } catch (const Error& error) {
    return std::to_string(error.exit_code()) + error.what();
  } catch (const std::exception& error) {
    return std::string("1") + error.what();
  }
}

[[noreturn]] void throw_error(char exit_code, const std::string& text) {
  if (exit_code == '2') throw UserError("{}", text);
  if (exit_code == '3') throw OutOfMemory(text);
  throw InternalError(text);
}

constexpr size_t kMostShown = 5;

using Values = std::map<std::string, std::string>;

Values read(const std::string& text) {
  Values values;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const size_t equals = line.find(" = ");
    if (equals == line.npos)
      values[line] = "there";
    else
      values[line.substr(0, equals)] = line.substr(equals + 3);
  }
  return values;
}

std::string value_of(const Values& values, const std::string& name) {
  const auto found = values.find(name);
  return found == values.end() ? "nothing" : found->second;
}

}  // namespace

std::vector<std::string> agree(Group* group, const std::function<std::string()>& work) {
  if (group == nullptr || group->size() == 1) return {work()};
  std::vector<std::string> outcomes = group->gather_texts(outcome_of(work));
  const auto failed = [](const std::string& outcome) { return outcome.front() != '0'; };
  const auto first = std::ranges::find_if(outcomes, failed);
  if (first != outcomes.end()) {
    const auto others = std::ranges::count_if(outcomes, failed) - 1;
    const std::string more =
        others == 0 ? "" : fmt::format(" (and {} other rank{})", others, others == 1 ? "" : "s");
    throw_error(first->front(), fmt::format("rank {}{}: {}", first - outcomes.begin(), more,
                                            std::string_view(*first).substr(1)));
  }
  for (std::string& outcome : outcomes) outcome.erase(0, 1);
  return outcomes;
}

std::string disagreement(const std::vector<std::string>& texts) {
  std::vector<Values> values;
  for (const std::string& text : texts) values.push_back(read(text));
  std::set<std::string> names;
  for (const Values& of_rank : values)
    for (const auto& [name, value] : of_rank) names.insert(name);
  std::vector<std::string> faults;
  for (const std::string& name : names) {
    const std::string wanted = value_of(values[0], name);
    std::map<std::string, std::vector<size_t>> others;
    for (size_t rank = 1; rank < values.size(); ++rank)
      if (const std::string value = value_of(values[rank], name); value != wanted)
        others[value].push_back(rank);
    for (const auto& [value, ranks] : others)
      faults.push_back(fmt::format("{} = {} on rank{} {}, and {} on rank 0", name, value,
                                   ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "), wanted));
  }
  const size_t more = faults.size() - std::min(faults.size(), kMostShown);
  faults.resize(faults.size() - more);
  return fmt::format("{}{}", fmt::join(faults, "\n"),
                     more == 0 ? "" : fmt::format("\nand {} more", more));
}

void check_agreement(Group& world, const std::string& text) {
  if (world.size() == 1) return;
  if (const std::string fault = disagreement(world.gather_texts(text)); !fault.empty())
    throw UserError(
        "the processes have different settings; start all with the same command, recipe file and "
        "program:\n{}",
        fault);
}

}  // namespace snug::dist
