// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>

#include "engine/strategy.h"
#include "plan/command/planned.h"

namespace snug::plan {
namespace {

using nlohmann::json;

json cost_json(const StepCost& c) {
  return {{"step_seconds", c.seconds()},
          {"tokens_per_second", c.tokens_per_second()},
          {"products_seconds", c.products_seconds},
          {"attention_seconds", c.attention_seconds},
          {"activations_seconds", c.memory_seconds},
          {"optimizer_seconds", c.optimizer_seconds},
          {"exposed_optimizer_seconds", c.exposed_optimizer_seconds},
          {"disk_seconds", c.disk_seconds},
          {"exposed_disk_seconds", c.exposed_disk_seconds},
          {"transfer_seconds", c.transfer_seconds},
          {"exposed_transfer_seconds", c.exposed_transfer_seconds},
          {"collective_seconds", c.collective_seconds},
          {"exposed_collective_seconds", c.exposed_collective_seconds},
          {"idle_seconds", c.idle_seconds},
          {"retry_seconds", c.retry_seconds},
          {"model_flops_per_second", c.seconds() > 0 ? c.model_flops / c.seconds() : 0},
          {"share_of_peak", c.seconds() > 0 && c.peak_flops_per_second > 0
                                ? c.model_flops / c.seconds() / c.peak_flops_per_second
                                : 0},
          {"busy_share", c.busy_share()}};
}

json price_json(const Planned& p) {
  const int64_t devices = engine::named_ranks(p.recipe);
  json out{{"price_per_hour", p.price.per_hour}, {"currency", p.price.currency}};
  const auto add = [&](const std::string& what, double tokens) {
    const double rate = p.wanted.cost.tokens_per_second();
    if (rate <= 0) return;
    out[what + "_seconds"] = tokens / rate;
    out[what + "_price"] = p.price.of(tokens / rate, devices);
  };
  add("million_tokens", 1e6);
  if (p.from_data) {
    add("epoch", static_cast<double>(engine::tokens_per_epoch(p.length, p.samples)));
    out["run_price"] = p.price.of(p.run_seconds(), devices);
  }
  return out;
}

json candidate_json(const Planned& p, const Candidate& c) {
  return {{"options", c.options},
          {"fits", fits(c, p.device)},
          {"micro_batch_size", c.recipe.train.micro_batch_size},
          {"strategy", c.recipe.strategy},
          {"mesh", recipe::mesh_text(engine::named_strategy(c.recipe).mesh)},
          {"pipeline_interleave", c.recipe.pipeline_interleave},
          {"peak_allocated", c.prediction.peak_allocated},
          {"peak_reserved", c.prediction.peak_reserved},
          {"offloaded_to_host", c.prediction.peak_host},
          {"on_disk", c.prediction.on_disk},
          {"time", cost_json(c.cost)}};
}

}  // namespace

std::map<std::string, int64_t> named(const memory::ByCategory& bytes) {
  std::map<std::string, int64_t> result;
  for (size_t c = 0; c < memory::kNumCategories; ++c)
    result[memory::name(static_cast<memory::Category>(c))] = bytes[c];
  return result;
}

json timeline_json(const std::vector<Moment>& timeline) {
  json moments = json::array();
  for (const Moment& moment : timeline)
    moments.push_back({{"unit", moment.unit},
                       {"phase", memory::name(moment.phase)},
                       {"allocated", moment.allocated},
                       {"by_category", named(moment.by_category)}});
  return moments;
}

json plan_json(const Planned& p) {
  const engine::ParameterCount count = p.count_parameters();
  json out{{"schema", 1},
           {"model", {{"parameters", count.total}, {"trained", count.trained}}},
           {"device",
            {{"name", p.device.name},
             {"kind", p.device.kind == at::kCUDA ? "cuda" : "cpu"},
             {"memory_bytes", p.device.memory_bytes},
             {"context_bytes", p.device.context_bytes},
             {"usable_bytes", p.device.usable_bytes()},
             {"host_bytes", p.device.host_bytes},
             {"assumed_host_bytes", p.device.assumed_host_bytes},
             {"disk_read_bytes_per_second", p.device.disk_read_bytes_per_second},
             {"disk_write_bytes_per_second", p.device.disk_write_bytes_per_second}}},
           {"batch",
            {{"micro_batch_size", p.recipe.train.micro_batch_size},
             {"documents_per_sample", p.samples.documents_per_sample()},
             {"tokens_per_document", p.samples.longest()},
             {"tokens_per_sample", p.samples.most_tokens_of_sample()},
             {"global_batch_size", p.recipe.train.global_batch_size}}},
           {"notes", p.length.note.empty() ? json::array() : json::array({p.length.note})},
           {"fits", p.wanted_fits()},
           {"margin_bytes", p.device.usable_bytes() - p.need()},
           {"missing",
            {{"on_device", p.missing().on_device},
             {"in_host", p.missing().in_host},
             {"on_disk", p.missing().on_disk}}},
           {"memory",
            {{"peak_allocated", p.prediction().peak_allocated},
             {"peak_reserved", p.prediction().peak_reserved},
             {"num_alloc_retries", p.prediction().driver_calls.retries},
             {"offloaded_to_host", p.prediction().peak_host},
             {"on_disk", p.prediction().on_disk},
             {"weights_on_disk", p.prediction().weights_on_disk},
             {"after_forward", p.prediction().after_forward},
             {"parameter_bytes",
              p.prediction().resident[static_cast<size_t>(memory::Category::Parameters)]},
             {"by_category", named(p.prediction().by_category)},
             {"host_by_category", named(p.prediction().host_by_category)}}},
           {"time", cost_json(p.wanted.cost)},
           {"timeline", timeline_json(p.prediction().timeline)}};
  if (p.from_data) {
    out["batch"]["steps"] = p.length.steps;
    out["time"]["run_seconds"] = p.run_seconds();
  }
  if (p.from_data) out["batch"]["tokens_per_epoch"] = engine::tokens_per_epoch(p.length, p.samples);
  if (p.asked) out["asked"] = {{"model", p.asked->path}, {"parameter_bytes", p.asked->weights}};
  if (p.price.per_hour > 0) out["cost"] = price_json(p);
  if (p.has_many_devices()) {
    out["ranks"] = engine::named_ranks(p.recipe);
    out["links"] = links_json(p.wanted, p.device);
    for (const Candidate& stage : p.stages)
      out["stages"].push_back({{"peak_allocated", stage.prediction.peak_allocated},
                               {"peak_reserved", stage.prediction.peak_reserved}});
  }
  if (p.counted) out["operations"] = operations_json(*p.counted);
  if (p.scaling) out["scaling"] = p.scaling->json();
  if (p.like) out["like"] = p.like->json();
  if (p.fit) {
    json front = json::array();
    for (const Candidate& c : p.fit->front) front.push_back(candidate_json(p, c));
    out["fit"] = {{"tried", p.fit->tried}, {"front", front}};
    if (p.fit->best) out["fit"]["best"] = candidate_json(p, *p.fit->best);
    for (const Suggestion& s : p.other_training)
      out["fit"]["other_training"].push_back({{"options", s.options},
                                              {"cost", s.cost},
                                              {"peak_allocated", s.peak_allocated},
                                              {"step_seconds", s.step_seconds},
                                              {"time_factor", s.time_factor},
                                              {"adds_adapters", s.adds_adapters}});
    if (p.fit->with_disk) out["fit"]["with_disk"] = candidate_json(p, *p.fit->with_disk);
  }
  return out;
}

}  // namespace snug::plan
