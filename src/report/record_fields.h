// What run.json holds, each field once: writing and reading go through this list. `field(key,
// value)` is called in the order of the file; `field.measured(key, value)` for what a plan
// does not know, `field.added(key, value)` for what files of earlier versions lack.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <type_traits>

#include "report/run_record.h"

namespace snug::report {

// The record itself, to be changed or not.
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
}

void fields(Of<ValidationRecord> auto& r, auto& field) {
  field("step", r.step);
  field("loss", r.loss);
  field("tokens", r.tokens);
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
}

void fields(Of<MemoryPeaks> auto& r, auto& field) {
  field("peak_allocated", r.peak_allocated);
  field("peak_reserved", r.peak_reserved);
  field.measured("peak_host", r.peak_host);
  field("on_disk", r.on_disk);
  field("by_category", r.by_category);
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
  field("speed", r.speed);
  field("memory", r.memory);
  field("validation", r.validation);
  field("out_of_memory", r.out_of_memory);
  field("resumptions", r.resumptions);
  field.added("samples", r.samples);
  field("startup_s", r.startup);
  field("seconds_total", r.seconds_total);
}

}  // namespace snug::report
