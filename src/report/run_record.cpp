// SPDX-License-Identifier: Apache-2.0
#include "report/run_record.h"

#include <algorithm>

#include "base/files.h"

namespace snug::report {
namespace {

// Keeps the order of the contract, where nlohmann::json would sort.
using Json = nlohmann::ordered_json;

Json to_json(const StepRecord& s) {
  return {{"step", s.step},
          {"loss", s.loss},
          {"seconds", s.seconds},
          {"tokens", s.tokens},
          {"padded_tokens", s.padded_tokens},
          {"lr", s.lr},
          {"grad_norm", s.grad_norm},
          {"raw_tokens", s.raw_tokens}};
}

Json to_json(const PhaseRecord& p) {
  return {{"step", p.step},
          {"phase", p.phase},
          {"parameters", p.parameters},
          {"gradients", p.gradients},
          {"optimizer_device", p.optimizer_device},
          {"optimizer_host", p.optimizer_host},
          {"activations", p.activations},
          {"workspace", p.workspace},
          {"communication", p.communication},
          {"data", p.data},
          {"allocated", p.allocated},
          {"peak", p.peak},
          {"reserved", p.reserved}};
}

Json to_json(const ValidationRecord& v) {
  return {{"step", v.step}, {"loss", v.loss}, {"tokens", v.tokens}};
}

Json to_json(const SuggestionRecord& s) {
  return {{"options", s.options},
          {"cost", s.cost},
          {"peak_allocated", s.peak_allocated},
          {"command", s.command}};
}

Json to_json(const ResumptionRecord& r) {
  return {{"step", r.step}, {"seconds_total", r.seconds_total}};
}

template <class Record>
Json list(const std::vector<Record>& records) {
  Json out = Json::array();
  for (const Record& record : records) out.push_back(to_json(record));
  return out;
}

Json to_json(const MemoryRecord& memory) {
  Json predicted;  // null
  if (memory.predicted)
    predicted = {{"peak_allocated", memory.predicted->peak_allocated},
                 {"peak_reserved", memory.predicted->peak_reserved},
                 {"on_disk", memory.predicted->on_disk},
                 {"by_category", memory.predicted->by_category}};
  const MemoryPeaks& measured = memory.measured;
  return {{"predicted", predicted},
          {"measured",
           {{"peak_allocated", measured.peak_allocated},
            {"peak_reserved", measured.peak_reserved},
            {"peak_host", measured.peak_host},
            {"on_disk", measured.on_disk},
            {"by_category", measured.by_category}}},
          {"phases", list(memory.phases)}};
}

Json to_json(const std::optional<OutOfMemoryRecord>& o) {
  if (!o) return nullptr;
  return {{"phase", o->phase},
          {"unit", o->unit},
          {"category", o->category},
          {"requested", o->requested},
          {"missing", o->missing},
          {"allocated", o->allocated},
          {"by_category", Json(o->by_category)},
          {"by_unit", Json(o->by_unit)},
          {"suggestions", list(o->suggestions)}};
}

Json to_json(const StartupRecord& s) {
  Json stages = Json::object();
  for (const auto& [name, seconds] : s.stages) stages[name] = seconds;
  return {{"stages", stages},
          {"first_step_begun", s.first_step_begun},
          {"first_step_ended", s.first_step_ended}};
}

std::string one_line(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

bool is_flat(const Json& value) {
  return std::none_of(value.begin(), value.end(), [](const Json& v) { return v.is_structured(); });
}

// Indents until a level holds only scalars, which goes on one line.
void append_pretty(const Json& value, size_t depth, std::string& out) {
  if (!value.is_structured() || is_flat(value)) {
    out += one_line(value);
    return;
  }
  const std::string indent(2 * (depth + 1), ' ');
  out += value.is_object() ? "{" : "[";
  bool first = true;
  for (const auto& [key, item] : value.items()) {
    out += (first ? "\n" : ",\n") + indent;
    if (value.is_object()) out += one_line(Json(key)) + ": ";
    append_pretty(item, depth + 1, out);
    first = false;
  }
  out += "\n" + std::string(2 * depth, ' ') + (value.is_object() ? "}" : "]");
}

}  // namespace

std::string run_json(const RunRecord& record) {
  const ModelRecord& model = record.model;
  const SpeedRecord& speed = record.speed;
  const Json json = {
      {"schema", record.schema},
      {"outcome", record.outcome},
      {"reason", record.reason},
      {"command", record.command},
      {"recipe", Json(record.recipe)},
      {"model",
       {{"id", model.id}, {"parameters", model.parameters}, {"trainable", model.trainable}}},
      {"device", {{"name", record.device.name}, {"budget_bytes", record.device.budget_bytes}}},
      {"world_size", record.world_size},
      {"steps", list(record.steps)},
      {"speed",
       {{"tokens_per_second", speed.tokens_per_second},
        {"model_flops_per_second", speed.model_flops_per_second},
        {"share_of_peak", speed.share_of_peak}}},
      {"memory", to_json(record.memory)},
      {"validation", list(record.validation)},
      {"out_of_memory", to_json(record.out_of_memory)},
      {"resumptions", list(record.resumptions)},
      {"startup_s", to_json(record.startup)},
      {"seconds_total", record.seconds_total}};
  std::string text;
  append_pretty(json, 0, text);
  return text + "\n";
}

void write_run_json(const RunRecord& record, const std::filesystem::path& path) {
  write_file_atomically(path, run_json(record));
}

}  // namespace snug::report
