// Members of results and suites by their own names, for row.json, lab.json and suite.json. A key
// that is missing leaves the member as it is by default.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "lab/result.h"

namespace nlohmann {

template <class T>
struct adl_serializer<std::optional<T>> {
  static void to_json(json& out, const std::optional<T>& value) {
    out = value ? json(*value) : json();
  }
  static void from_json(const json& in, std::optional<T>& value) {
    if (in.is_null())
      value.reset();
    else
      value = in.get<T>();
  }
};

}  // namespace nlohmann

namespace snug::lab {

std::optional<Mode> mode_named(const std::string& text);

NLOHMANN_JSON_SERIALIZE_ENUM(Outcome, {{Outcome::NotRun, "not run"},
                                       {Outcome::Ok, "ok"},
                                       {Outcome::OutOfMemory, "oom"},
                                       {Outcome::Error, "error"},
                                       {Outcome::Crashed, "crashed"},
                                       {Outcome::TimedOut, "timeout"},
                                       {Outcome::Interrupted, "interrupted"}})
NLOHMANN_JSON_SERIALIZE_ENUM(Expected, {{Expected::Unknown, "unknown"},
                                        {Expected::Ok, "ok"},
                                        {Expected::OutOfMemory, "oom"}})
NLOHMANN_JSON_SERIALIZE_ENUM(Comparison::Quantity, {{Comparison::Quantity::Memory, "memory"},
                                                    {Comparison::Quantity::Time, "time"}})
NLOHMANN_JSON_SERIALIZE_ENUM(Comparison::Relation, {{Comparison::Relation::Less, "less"},
                                                    {Comparison::Relation::More, "more"},
                                                    {Comparison::Relation::Same, "same"}})
NLOHMANN_JSON_SERIALIZE_ENUM(Group::Kind,
                             {{Group::Kind::Sweep, "sweep"}, {Group::Kind::Search, "search"}})

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(Comparison, quantity, relation, than)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(Published, allocated_after_forward, peak_allocated,
                                                reserved, parameter_bytes, iteration_seconds,
                                                teraflops_per_second, device_use, device_use_spread,
                                                epoch_seconds, last_loss)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(Row, id, title, change, from, model, command,
                                                options, plan_options, run_options, scaled_options,
                                                device, memory_budget, scaled_memory_budget, like,
                                                expected, comparisons, published, hardware, notes,
                                                explained, not_run, group, value)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(Group, kind, id, title, over, base, together,
                                                smallest, largest, models)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(ModelChoice, checkpoint, config, scaled_config)

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(Moment, unit, phase, allocated, by_category)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(Figures, fits, peak_allocated, peak_reserved,
                                                reserved_ahead, after_forward, peak_host,
                                                parameter_bytes, by_category, step_seconds,
                                                tokens_per_second, model_flops_per_second,
                                                share_of_peak, device_use, timeline)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(LossPoint, step, loss)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(PhasePoint, step, phase, by_category, allocated,
                                                peak, reserved)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(RowResult, id, outcome, reason, command,
                                                plan_command, made_from, seconds, limit_bytes,
                                                predicted, like, like_program, like_notes, measured,
                                                losses, phases, parameters, trained, device,
                                                world_size)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(LabRecord, schema, suite, title, about, source,
                                                mode, command, started, version, device, hardware,
                                                versions, rows, made_from, seconds)

void to_json(nlohmann::json& out, const Suite& suite);
void from_json(const nlohmann::json& in, Suite& suite);

}  // namespace snug::lab
