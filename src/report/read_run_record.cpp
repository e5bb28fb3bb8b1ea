// run.json read back, so that a run that is resumed tells its whole story.
// SPDX-License-Identifier: Apache-2.0
#include <limits>

#include "base/error.h"
#include "base/files.h"
#include "report/run_record.h"

namespace snug::report {
namespace {

using Json = nlohmann::ordered_json;

template <class T>
void take(const Json& json, const char* key, T& out) {
  const Json& value = json.at(key);
  if constexpr (std::is_same_v<T, double>) {
    if (value.is_null()) {
      out = std::numeric_limits<double>::quiet_NaN();
      return;
    }
  }
  value.get_to(out);
}

void read(const Json& json, StepRecord& s) {
  take(json, "step", s.step);
  take(json, "loss", s.loss);
  take(json, "seconds", s.seconds);
  take(json, "tokens", s.tokens);
  take(json, "padded_tokens", s.padded_tokens);
  take(json, "lr", s.lr);
  take(json, "grad_norm", s.grad_norm);
  take(json, "raw_tokens", s.raw_tokens);
}

void read(const Json& json, PhaseRecord& p) {
  take(json, "step", p.step);
  take(json, "phase", p.phase);
  take(json, "parameters", p.parameters);
  take(json, "gradients", p.gradients);
  take(json, "optimizer_device", p.optimizer_device);
  take(json, "optimizer_host", p.optimizer_host);
  take(json, "activations", p.activations);
  take(json, "workspace", p.workspace);
  take(json, "communication", p.communication);
  take(json, "data", p.data);
  take(json, "allocated", p.allocated);
  take(json, "peak", p.peak);
  take(json, "reserved", p.reserved);
}

void read(const Json& json, ValidationRecord& v) {
  take(json, "step", v.step);
  take(json, "loss", v.loss);
  take(json, "tokens", v.tokens);
}

void read(const Json& json, ResumptionRecord& r) {
  take(json, "step", r.step);
  take(json, "seconds_total", r.seconds_total);
}

void read(const Json& json, SuggestionRecord& s) {
  take(json, "options", s.options);
  take(json, "cost", s.cost);
  take(json, "peak_allocated", s.peak_allocated);
  take(json, "command", s.command);
}

template <class Record>
void read_list(const Json& json, const char* key, std::vector<Record>& out) {
  for (const Json& item : json.at(key)) read(item, out.emplace_back());
}

void read(const Json& json, MemoryPeaks& peaks) {
  take(json, "peak_allocated", peaks.peak_allocated);
  take(json, "peak_reserved", peaks.peak_reserved);
  if (json.contains("peak_host")) take(json, "peak_host", peaks.peak_host);
  take(json, "on_disk", peaks.on_disk);
  take(json, "by_category", peaks.by_category);
}

void read(const Json& json, MemoryRecord& memory) {
  if (!json.at("predicted").is_null()) read(json.at("predicted"), memory.predicted.emplace());
  read(json.at("measured"), memory.measured);
  read_list(json, "phases", memory.phases);
}

void read(const Json& json, OutOfMemoryRecord& o) {
  take(json, "phase", o.phase);
  take(json, "unit", o.unit);
  take(json, "category", o.category);
  take(json, "requested", o.requested);
  take(json, "missing", o.missing);
  take(json, "allocated", o.allocated);
  take(json, "by_category", o.by_category);
  take(json, "by_unit", o.by_unit);
  read_list(json, "suggestions", o.suggestions);
}

void read(const Json& json, StartupRecord& s) {
  for (const auto& [name, seconds] : json.at("stages").items())
    s.stages.emplace_back(name, seconds);
  take(json, "first_step_begun", s.first_step_begun);
  take(json, "first_step_ended", s.first_step_ended);
}

void read(const Json& json, RunRecord& r) {
  take(json, "schema", r.schema);
  take(json, "outcome", r.outcome);
  take(json, "reason", r.reason);
  take(json, "command", r.command);
  r.recipe = nlohmann::json(json.at("recipe"));
  const Json& model = json.at("model");
  take(model, "id", r.model.id);
  take(model, "parameters", r.model.parameters);
  take(model, "trainable", r.model.trainable);
  take(json.at("device"), "name", r.device.name);
  take(json.at("device"), "budget_bytes", r.device.budget_bytes);
  take(json, "world_size", r.world_size);
  read_list(json, "steps", r.steps);
  const Json& speed = json.at("speed");
  take(speed, "tokens_per_second", r.speed.tokens_per_second);
  take(speed, "model_flops_per_second", r.speed.model_flops_per_second);
  take(speed, "share_of_peak", r.speed.share_of_peak);
  read(json.at("memory"), r.memory);
  read_list(json, "validation", r.validation);
  if (!json.at("out_of_memory").is_null())
    read(json.at("out_of_memory"), r.out_of_memory.emplace());
  read_list(json, "resumptions", r.resumptions);
  read(json.at("startup_s"), r.startup);
  take(json, "seconds_total", r.seconds_total);
}

}  // namespace

RunRecord read_run_json(const std::filesystem::path& path) {
  RunRecord record;
  try {
    read(Json::parse(read_file(path)), record);
  } catch (const Json::exception& error) {
    throw UserError("{} is no run.json of this version, or damaged: {}", path.string(),
                    error.what());
  }
  return record;
}

}  // namespace snug::report
