// SPDX-License-Identifier: Apache-2.0
#include "core/dist/agreement.h"

#include <algorithm>

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

}  // namespace snug::dist
