// SPDX-License-Identifier: Apache-2.0
#include "lab/result.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"

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

// Members of results and suites as JSON, under their own names. A missing key leaves the default.

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
                                                tokens_per_second, teraflops_per_second, device_use,
                                                device_use_spread, epoch_seconds, last_loss)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(Row, id, title, change, from, model, command,
                                                options, plan_options, run_options, scaled_options,
                                                original_options, device, memory_budget,
                                                scaled_memory_budget, like, expected, comparisons,
                                                published, time_is_fitted, hardware, notes,
                                                explained, not_run, group, value, price_per_hour)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(Group, kind, id, title, over, base, together,
                                                smallest, largest, models)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(ModelChoice, checkpoint, config, scaled_config)

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(Moment, unit, phase, allocated, by_category)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(Figures, fits, peak_allocated, peak_reserved,
                                                num_alloc_retries, after_forward, peak_host,
                                                parameter_bytes, by_category, step_seconds,
                                                tokens_per_second, model_flops_per_second,
                                                share_of_peak, device_use, device_use_spread,
                                                tokens_per_epoch, timeline)
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

namespace {

using nlohmann::json;

constexpr int kSchema = 1;

// NaN and infinities, which JSON has no word for, become null, and null is read as absent.
std::string text_of(json value) {
  value["schema"] = kSchema;
  return value.dump(1, ' ', false, json::error_handler_t::replace) + "\n";
}

template <class T>
T read_as(const std::filesystem::path& path) {
  try {
    const json value = json::parse(read_file(path));
    const int schema = value.value("schema", 0);
    if (schema != kSchema)
      throw UserError("{} was written by another version of snug (schema {}, this one reads {})",
                      path.string(), schema, kSchema);
    return value.get<T>();
  } catch (const json::exception& error) {
    throw UserError("{} is damaged or not a file of snug lab: {}", path.string(), error.what());
  }
}

}  // namespace

const char* name(Outcome outcome) {
  switch (outcome) {
    case Outcome::Ok:
      return "ok";
    case Outcome::OutOfMemory:
      return "oom";
    case Outcome::Error:
      return "error";
    case Outcome::Crashed:
      return "crashed";
    case Outcome::TimedOut:
      return "timeout";
    case Outcome::Interrupted:
      return "interrupted";
    case Outcome::NotRun:
      return "not run";
  }
  return "";
}

std::string row_json(const RowResult& result) { return text_of(result); }
RowResult read_row_json(const std::filesystem::path& path) { return read_as<RowResult>(path); }
std::string lab_json(const LabRecord& record) { return text_of(record); }
LabRecord read_lab_json(const std::filesystem::path& path) { return read_as<LabRecord>(path); }
std::string suite_json(const Suite& suite) { return text_of(suite); }
std::string list_rows_json(const Suite& suite) { return json(suite).dump(1) + "\n"; }
Suite read_suite_json(const std::filesystem::path& path) { return read_as<Suite>(path); }

const Row* LabRun::find_row(const std::string& id) const {
  const auto found = std::ranges::find(rows, id, &Row::id);
  return found == rows.end() ? nullptr : &*found;
}

const RowResult* LabRun::find(const std::string& id) const {
  const auto found = std::ranges::find(results, id, &RowResult::id);
  return found == results.end() ? nullptr : &*found;
}

RowResult result_of(const LabRecord& record, const std::string& id, std::optional<RowResult> left) {
  if (!left) return {.id = id, .reason = "not done yet"};
  const auto wanted = record.made_from.find(id);
  if (wanted == record.made_from.end() || left->made_from == wanted->second)
    return *std::move(left);
  return {.id = id, .reason = "done earlier with other options or files, and not since"};
}

LabRun read_lab_run(const std::filesystem::path& folder) {
  if (!std::filesystem::exists(folder / "lab.json"))
    throw UserError(
        "{} is not the folder of a lab run, because it has no lab.json; snug lab run creates such "
        "folders, by default out/lab/SUITE",
        folder.string());
  LabRun run{.folder = folder, .record = read_lab_json(folder / "lab.json"), .suite = {}};
  run.suite = read_suite_json(folder / "suite.json");
  const auto mode = mode_named(run.record.mode);
  if (!mode)
    throw UserError("{}: mode = {}: must be plan, run or scaled", (folder / "lab.json").string(),
                    run.record.mode);
  run.mode = *mode;
  for (const std::string& id : run.record.rows) {
    const auto row = std::ranges::find(run.suite.rows, id, &Row::id);
    if (row == run.suite.rows.end())
      throw UserError("{}: row {} is not in suite.json", (folder / "lab.json").string(), id);
    run.rows.push_back(*row);
    const std::filesystem::path file = folder / "rows" / id / "row.json";
    try {
      std::optional<RowResult> left;
      if (std::filesystem::exists(file)) left = read_row_json(file);
      run.results.push_back(result_of(run.record, id, std::move(left)));
    } catch (const UserError& error) {  // the other rows are read all the same
      warn("{}", error.what());
      run.results.push_back(
          {.id = id, .reason = "its row.json cannot be read; the same snug lab run does it again"});
    }
  }
  return run;
}

std::optional<Mode> mode_named(const std::string& text) {
  for (const Mode mode : {Mode::Plan, Mode::Run, Mode::Scaled})
    if (text == name(mode)) return mode;
  return std::nullopt;
}

// A path has no JSON of its own.
void to_json(nlohmann::json& out, const Suite& suite) {
  out = {{"name", suite.name},
         {"title", suite.title},
         {"about", suite.about},
         {"source", suite.source},
         {"file", suite.file.string()},
         {"device", suite.device},
         {"row_timeout_seconds", suite.row_timeout_seconds},
         {"scaled_row_timeout_seconds", suite.scaled_row_timeout_seconds},
         {"scaled_about", suite.scaled_about},
         {"models", suite.models},
         {"groups", suite.groups},
         {"rows", suite.rows}};
}

void from_json(const nlohmann::json& in, Suite& suite) {
  suite.name = in.value("name", "");
  suite.title = in.value("title", "");
  suite.about = in.value("about", "");
  suite.source = in.value("source", "");
  suite.file = in.value("file", "");
  suite.device = in.value("device", "");
  suite.row_timeout_seconds = in.value("row_timeout_seconds", 0.0);
  suite.scaled_row_timeout_seconds = in.value("scaled_row_timeout_seconds", 0.0);
  suite.scaled_about = in.value("scaled_about", "");
  suite.models = in.value("models", suite.models);
  suite.groups = in.value("groups", suite.groups);
  suite.rows = in.value("rows", suite.rows);
}

}  // namespace snug::lab
