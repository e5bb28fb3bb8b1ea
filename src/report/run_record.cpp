// SPDX-License-Identifier: Apache-2.0
#include "report/run_record.h"

#include <algorithm>
#include <concepts>
#include <limits>
#include <map>
#include <type_traits>
#include <utility>

#include "base/error.h"
#include "base/files.h"

namespace snug::report {

// The fields of run.json, each listed once for both writing and reading, in the order of the file.
// `field.measured` marks what a plan does not know, `field.added` what files of earlier versions
// lack, `field.rare` what is left out where it has its usual value.

// `Record`, const when it is written.
template <class T, class Record>
concept Of = std::same_as<std::remove_const_t<T>, Record>;

void fields(Of<StepRecord> auto& r, auto& field) {
  field("step", r.step);
  field("loss", r.loss);
  field("seconds", r.seconds);
  field("tokens", r.tokens);
  field("padded_tokens", r.padded_tokens);
  field("lr", r.lr);
  field("grad_norm", r.grad_norm);
  field("raw_tokens", r.raw_tokens);
  field.added("epoch", r.epoch);
  field.added("utilization", r.utilization);
  field.rare("expert_load", r.expert_load, 0);
  field.figures(r.figures);
  field.rare("count", r.count, 1);
}

void fields(Of<ExpertRecord> auto& r, auto& field) {
  field("block", r.block);
  field("steps", r.steps);
  field("shares", r.shares);
}

void fields(Of<StepStatistics> auto& r, auto& field) {
  field("mean_seconds", r.mean_seconds);
  field("median_seconds", r.median_seconds);
  field("mean_utilization", r.mean_utilization);
  field("utilization_deviation", r.utilization_deviation);
}

void fields(Of<EpochRecord> auto& r, auto& field) {
  field("epoch", r.epoch);
  field("steps", r.steps);
  field("loss", r.loss);
  field("tokens", r.tokens);
  field("seconds", r.seconds);
  field.rare("skipped", r.skipped, 0);
  field.rare("count", r.count, 1);
}

void fields(Of<PhaseRecord> auto& r, auto& field) {
  field("step", r.step);
  field("phase", r.phase);
  field("parameters", r.parameters);
  field("gradients", r.gradients);
  field("optimizer_device", r.optimizer_device);
  field("optimizer_host", r.optimizer_host);
  field("activations", r.activations);
  field("workspace", r.workspace);
  field("communication", r.communication);
  field("data", r.data);
  field("allocated", r.allocated);
  field("peak", r.peak);
  field("reserved", r.reserved);
  field.added("micro_batch", r.micro_batch);
}

void fields(Of<ValidationRecord> auto& r, auto& field) {
  field("step", r.step);
  field("loss", r.loss);
  field("tokens", r.tokens);
  field.figures(r.figures);
  field.rare("sources", r.sources, {});
  field.rare("count", r.count, 1);
}

void fields(Of<SourceRecord> auto& r, auto& field) {
  field("name", r.name);
  field("samples", r.samples);
  field("held_out", r.held_out);
  field("per_epoch", r.per_epoch);
  field("read", r.read);
  field("style", r.style);
}

void fields(Of<BestRecord> auto& r, auto& field) {
  field("step", r.step);
  field("metric", r.metric);
  field("value", r.value);
  field("later", r.later);
}

void fields(Of<ModelRecord> auto& r, auto& field) {
  field("id", r.id);
  field("parameters", r.parameters);
  field("trainable", r.trainable);
}

void fields(Of<DeviceRecord> auto& r, auto& field) {
  field("name", r.name);
  field("budget_bytes", r.budget_bytes);
}

void fields(Of<SpeedRecord> auto& r, auto& field) {
  field("tokens_per_second", r.tokens_per_second);
  field("model_flops_per_second", r.model_flops_per_second);
  field("share_of_peak", r.share_of_peak);
  field.added("steps", r.steps);
}

void fields(Of<MemoryPeaks> auto& r, auto& field) {
  field("peak_allocated", r.peak_allocated);
  field("peak_reserved", r.peak_reserved);
  field.measured("peak_host", r.peak_host);
  field("on_disk", r.on_disk);
  field("by_category", r.by_category);
  field.measured("num_alloc_retries", r.num_alloc_retries);
}

void fields(Of<MemoryRecord> auto& r, auto& field) {
  field("predicted", r.predicted);
  field("measured", r.measured);
  field("phases", r.phases);
}

void fields(Of<SuggestionRecord> auto& r, auto& field) {
  field("options", r.options);
  field("cost", r.cost);
  field("peak_allocated", r.peak_allocated);
  field("command", r.command);
}

void fields(Of<OutOfMemoryRecord> auto& r, auto& field) {
  field("phase", r.phase);
  field("unit", r.unit);
  field("category", r.category);
  field("requested", r.requested);
  field("missing", r.missing);
  field("allocated", r.allocated);
  field("by_category", r.by_category);
  field("by_unit", r.by_unit);
  field("suggestions", r.suggestions);
}

void fields(Of<RankMemoryRecord> auto& r, auto& field) {
  field("rank", r.rank);
  field("device", r.device);
  field("predicted_allocated", r.predicted_allocated);
  field("peak_allocated", r.peak_allocated);
  field("peak_host", r.peak_host);
  field.added("num_alloc_retries", r.num_alloc_retries);
}

void fields(Of<ResumptionRecord> auto& r, auto& field) {
  field("step", r.step);
  field("seconds_total", r.seconds_total);
}

void fields(Of<SampleRecord> auto& r, auto& field) {
  field("question", r.question);
  field("expected", r.expected);
  field("before", r.before);
  field("after", r.after);
}

void fields(Of<StartupRecord> auto& r, auto& field) {
  field("stages", r.stages);
  field("first_step_begun", r.first_step_begun);
  field("first_step_ended", r.first_step_ended);
}

void fields(Of<RunRecord> auto& r, auto& field) {
  field("schema", r.schema);
  field("outcome", r.outcome);
  field("reason", r.reason);
  field.added("notes", r.notes);
  field("command", r.command);
  field("recipe", r.recipe);
  field("model", r.model);
  field("device", r.device);
  field("world_size", r.world_size);
  field("mesh", r.mesh);
  field("ranks", r.ranks);
  field("steps", r.steps);
  field.added("epochs", r.epochs);
  field.added("tokens_per_epoch", r.tokens_per_epoch);
  field.rare("experts", r.experts, {});
  field.rare("sources", r.sources, {});
  field("speed", r.speed);
  field("memory", r.memory);
  field("validation", r.validation);
  field.rare("best_validation", r.best, {});
  field("out_of_memory", r.out_of_memory);
  field("resumptions", r.resumptions);
  field.added("samples", r.samples);
  field("startup_s", r.startup);
  field.added("fit_seconds", r.fit_seconds);
  field("seconds_total", r.seconds_total);
}

namespace {

// Keeps the order of the contract, where nlohmann::json would sort.
using Json = nlohmann::ordered_json;

struct Writer;
template <class T>
concept WrittenRecord = requires(const T& value, Writer& writer) {
  fields(value, writer);
};

template <class T>
Json as_json(const T& value) {
  return Json(value);
}
Json as_json(const WrittenRecord auto& record);
Json as_json(const std::vector<std::pair<std::string, double>>& values) {
  Json json = Json::object();
  for (const auto& [name, value] : values) json[name] = value;
  return json;
}
template <WrittenRecord T>
Json as_json(const std::vector<T>& records) {
  Json json = Json::array();
  for (const T& record : records) json.push_back(as_json(record));
  return json;
}
Json as_json(const std::optional<OutOfMemoryRecord>& record) {
  return record ? as_json(*record) : Json();
}
Json as_json(const std::optional<MemoryPeaks>& predicted);

struct Writer {
  template <class T>
  void operator()(const char* key, const T& value) {
    json[key] = as_json(value);
  }
  void measured(const char* key, int64_t value) {
    if (!of_a_plan) json[key] = value;
  }
  template <class T>
  void added(const char* key, const T& value) {
    (*this)(key, value);
  }
  template <class T>
  void rare(const char* key, const T& value, const std::type_identity_t<T>& usual) {
    if (value != usual) (*this)(key, value);
  }
  // Beside the other fields.
  void figures(const Figures& figures) {
    for (const auto& [name, value] : figures) json[name] = as_json(value);
  }
  bool of_a_plan = false;
  Json json = Json::object();
};

Json as_json(const WrittenRecord auto& record) {
  Writer writer;
  fields(record, writer);
  return std::move(writer.json);
}

Json as_json(const std::optional<MemoryPeaks>& predicted) {
  Writer writer{.of_a_plan = true};
  if (!predicted) return nullptr;
  fields(*predicted, writer);
  return std::move(writer.json);
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
  std::string text;
  append_pretty(as_json(record), 0, text);
  return text + "\n";
}

void write_run_json(const RunRecord& record, const std::filesystem::path& path) {
  write_file_atomically(path, run_json(record));
}

namespace {

using Json = nlohmann::ordered_json;

struct Reader;
template <class T>
concept ReadRecord = requires(T& value, const Reader& reader) {
  fields(value, reader);
};

template <class T>
void read(const Json& json, T& out) {
  json.get_to(out);
}
void read(const Json& json, double& out) {
  out = json.is_null() ? std::numeric_limits<double>::quiet_NaN() : json.get<double>();
}
// Counts and bytes are such that their sums, over steps and categories, are numbers too.
void read(const Json& json, int64_t& out) {
  constexpr int64_t kMost = int64_t{1} << 48;
  json.get_to(out);
  if (out < -kMost || out > kMost)
    throw Json::other_error::create(500, "a count of " + json.dump() + " is impossible", nullptr);
}
void read(const Json& json, std::map<std::string, int64_t>& out) {
  for (const auto& [name, value] : json.items()) read(value, out[name]);
}
void read(const Json& json, Figures& out) {
  for (const auto& [name, value] : json.items()) read(value, out[name]);
}
void read(const Json& json, nlohmann::json& out) { out = nlohmann::json(json); }
void read(const Json& json, ReadRecord auto& record);
void read(const Json& json, std::vector<std::pair<std::string, double>>& out) {
  for (const auto& [name, value] : json.items()) out.emplace_back(name, value);
}
template <ReadRecord T>
void read(const Json& json, std::vector<T>& out) {
  for (const Json& item : json) read(item, out.emplace_back());
}
template <ReadRecord T>
void read(const Json& json, std::optional<T>& out) {
  if (!json.is_null()) read(json, out.emplace());
}

struct Reader {
  template <class T>
  void operator()(const char* key, T& out) const {
    read(json.at(key), out);
  }
  template <class T>
  void measured(const char* key, T& out) const {
    if (json.contains(key)) read(json.at(key), out);
  }
  template <class T>
  void added(const char* key, T& out) const {
    measured(key, out);
  }
  template <class T>
  void rare(const char* key, T& out, const std::type_identity_t<T>& usual) const {
    out = usual;
    measured(key, out);
  }
  void figures(Figures& figures) const {
    for (const char* name : kFigureNames)
      if (json.contains(name)) read(json.at(name), figures[name]);
  }
  const Json& json;
};

void read(const Json& json, ReadRecord auto& record) {
  const Reader reader{json};
  fields(record, reader);
}

// A step of a thinned list stands for some before it as well.
void check_counts(const RunRecord& record) {
  const auto is_possible = [](const StepRecord& step) {
    return step.count >= 1 && step.count <= std::max<int64_t>(1, step.step);
  };
  if (!std::ranges::all_of(record.steps, is_possible))
    throw Json::other_error::create(500, "a count of steps is impossible", nullptr);
}

}  // namespace

RunRecord read_run_json(const std::filesystem::path& path) {
  RunRecord record;
  try {
    read(Json::parse(read_file(path)), record);
    check_counts(record);
  } catch (const Json::exception& error) {
    throw UserError("{} is not a run.json of this version, or it is damaged: {}", path.string(),
                    error.what());
  }
  return record;
}

std::optional<double> accuracy_in(const Figures& figures) {
  for (const char* name : {"rewards_accuracy", "accuracy"})
    if (const auto found = figures.find(name); found != figures.end()) return found->second;
  return std::nullopt;
}

}  // namespace snug::report
