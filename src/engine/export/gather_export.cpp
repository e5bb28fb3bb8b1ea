// SPDX-License-Identifier: Apache-2.0
#include "engine/export/gather_export.h"

#include <exception>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "core/dist/agreement.h"

namespace snug::engine {
namespace {

constexpr const char* kOver = "over";

// The unit that is gathered at the moment.
class Current {
 public:
  explicit Current(const UnitGathering& gathering) : gathering_(gathering) {}

  bool is(size_t unit) const { return unit_ == unit; }
  void change_to(std::optional<size_t> unit) {
    if (const auto last = std::exchange(unit_, std::nullopt)) gathering_.release(*last);
    if (unit) gathering_.gather(*unit);
    unit_ = unit;
  }

 private:
  const UnitGathering& gathering_;
  std::optional<size_t> unit_;
};

// Rank 0: tells the other ranks which unit to gather and when writing is done. Returns what `write`
// threw.
std::exception_ptr ask(dist::Group& ranks, const std::vector<nn::Unit*>& units,
                       const UnitGathering& gathering, Current& current,
                       const std::function<void(const ParameterReader&)>& write) {
  std::unordered_map<const nn::Parameter*, size_t> unit_of;
  for (size_t i = 0; i < units.size(); ++i)
    for (const nn::Parameter* parameter : units[i]->parameters()) unit_of[parameter] = i;
  bool together = true;  // the other ranks wait for the next request, not inside a gather
  const auto read = [&](const nn::Parameter& parameter) {
    const auto found = unit_of.find(&parameter);
    SNUG_CHECK(found != unit_of.end(), "{} belongs to none of the units", parameter.name);
    if (!current.is(found->second)) {
      together = false;
      ranks.broadcast_text(std::to_string(found->second), 0);
      current.change_to(found->second);
      together = true;
    }
    return gathering.read(parameter);
  };
  std::exception_ptr failure;
  try {
    write(read);
  } catch (...) {
    if (!together) throw;
    failure = std::current_exception();
  }
  ranks.broadcast_text(kOver, 0);
  return failure;
}

void serve(dist::Group& ranks, Current& current) {
  while (true) {
    const std::string unit = ranks.broadcast_text("", 0);
    if (unit == kOver) return;
    current.change_to(std::stoull(unit));
  }
}

}  // namespace

void write_gathered(dist::Group& ranks, const std::vector<nn::Unit*>& units,
                    const UnitGathering& gathering,
                    const std::function<void(const ParameterReader&)>& write) {
  Current current(gathering);
  std::exception_ptr failure;
  if (ranks.rank() == 0)
    failure = ask(ranks, units, gathering, current, write);
  else
    serve(ranks, current);
  current.change_to(std::nullopt);
  dist::agree(&ranks, [&]() -> std::string {
    if (failure) std::rethrow_exception(failure);
    return "";
  });
}

}  // namespace snug::engine
