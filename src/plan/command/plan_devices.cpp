// SPDX-License-Identifier: Apache-2.0
#include "plan/command/plan_devices.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/bytes.h"
#include "base/text.h"
#include "engine/strategy.h"
#include "recipe/mesh.h"
#include "recipe/tables/optimizers.h"
#include "report/tables.h"

namespace snug::plan {
namespace {

using dist::Axis;
using engine::Strategy;
using exec::ShardingStage;

constexpr int64_t kScales[] = {1, 8, 64, 512, 4096};
constexpr int64_t kUsualDevicesOfMachine = 8;

// As --strategy names it.
const char* name_of(const Strategy& strategy) {
  switch (strategy.stage) {
    case ShardingStage::Replicate:
      return strategy.mesh.num_gradient_ranks() > 1 ? "ddp" : "";
    case ShardingStage::OptimizerStates:
      return "zero1";
    case ShardingStage::Gradients:
      return "zero2";
    case ShardingStage::Weights:
      return strategy.mesh[Axis::Replicate] > 1 ? "hybrid" : "fsdp";
  }
  return "";
}

// "one forward one backward, 2 virtual stages each".
std::string schedule_words(const recipe::Recipe& recipe) {
  const bool is_gpipe = recipe.pipeline_schedule == recipe::PipelineSchedule::Gpipe;
  return fmt::format("{}{}", is_gpipe ? "all forward first" : "one forward one backward",
                     recipe.pipeline_interleave > 1
                         ? fmt::format(", {} virtual stages each", recipe.pipeline_interleave)
                         : "");
}

const char* parts_of(ShardingStage stage) {
  switch (stage) {
    case ShardingStage::Replicate:
      return "";
    case ShardingStage::OptimizerStates:
      return "optimizer states";
    case ShardingStage::Gradients:
      return "gradients and optimizer states";
    case ShardingStage::Weights:
      return "weights, gradients and optimizer states";
  }
  return "";
}

std::string bytes_text(double bytes) {
  return bytes == 0 ? "-" : format_bytes(static_cast<int64_t>(bytes));
}

std::vector<plan::AxisCost> costs_of(const plan::Candidate& candidate,
                                     const plan::DeviceProfile& device) {
  const int64_t per_machine = engine::named_ranks_per_node(candidate.recipe);
  return plan::axis_costs(candidate.prediction, engine::named_strategy(candidate.recipe).mesh,
                          /*rank=*/0,
                          plan::network_of(plan::share_of(device, per_machine), per_machine));
}

// A recipe's mesh for `ranks` devices: more data-parallel copies.
bool grow_mesh(recipe::Recipe& recipe, int64_t ranks) {
  recipe::MeshShape shape;
  recipe::read_mesh(recipe.mesh, shape);
  if (ranks % shape.num_ranks() != 0) return false;
  shape[Axis::Replicate] *= static_cast<int>(ranks / shape.num_ranks());
  recipe.mesh = recipe::mesh_text(shape);
  return true;
}

std::vector<std::string> strategies(const recipe::Recipe& recipe, int64_t ranks) {
  if (ranks == 1 || recipe.strategy != recipe::Strategy::Auto || !recipe.mesh.empty())
    return {recipe.strategy};
  if (recipe::needs_whole_matrices(recipe.optimizer)) return {"ddp"};
  if (ranks <= kUsualDevicesOfMachine) return {"ddp", "fsdp"};
  return {"ddp", "fsdp", "hybrid"};
}

int64_t need(const plan::Candidate& candidate, const plan::DeviceProfile& device) {
  return plan::bytes_on_device(candidate.prediction, device.kind);
}

}  // namespace

bool scale_to(recipe::Recipe& recipe, int64_t ranks) {
  const int64_t samples =
      recipe.train.global_batch_size / engine::named_strategy(recipe).mesh.num_data_ranks();
  const int64_t named = engine::named_ranks_per_node(recipe);
  const int64_t per_machine = std::min(ranks, named > 1 ? named : kUsualDevicesOfMachine);
  if (ranks % per_machine != 0) return false;
  if (!recipe.mesh.empty() && !grow_mesh(recipe, ranks)) return false;
  recipe.devices = std::to_string(per_machine);
  recipe.num_nodes = ranks / per_machine;
  recipe.train.global_batch_size = samples * engine::named_strategy(recipe).mesh.num_data_ranks();
  return true;
}

std::string seconds_text(double seconds) {
  return seconds < 100 ? fmt::format("{:.3g}", seconds) : fmt::format("{:.0f}", seconds);
}

std::string devices_line(const recipe::Recipe& recipe) {
  const Strategy strategy = engine::named_strategy(recipe);
  const int64_t ranks = engine::named_ranks(recipe);
  std::string line = fmt::format("{}", ranks);
  if (recipe.num_nodes > 1)
    line += fmt::format(" on {} machines of {}", recipe.num_nodes,
                        engine::named_ranks_per_node(recipe));
  const std::string name = name_of(strategy);
  line += fmt::format(", {}{}{}{}", name, name.empty() ? "" : " (",
                      recipe::mesh_text(strategy.mesh), name.empty() ? "" : ")");
  const bool is_cut = strategy.stage != ShardingStage::Replicate;
  const int shards = is_cut ? strategy.mesh.num_shards() : 1;
  const int copies = strategy.mesh.num_gradient_ranks() / shards;
  const int experts = strategy.mesh[Axis::Expert];
  if (shards > 1)
    line += fmt::format(": each holds 1/{} of {}", shards, parts_of(strategy.stage));
  else if (copies > 1)
    line += fmt::format(": each holds the whole model{}, gradients are summed",
                        experts > 1 ? fmt::format(" with 1/{} of its experts", experts) : "");
  if (shards > 1 && copies > 1) line += fmt::format(", in {} copies", copies);
  if (shards > 1 && experts > 1) line += fmt::format("; of experts 1/{}", shards * experts);
  if (const int stages = strategy.mesh[Axis::Pipeline]; stages > 1)
    line += fmt::format("{} layers are split into {} stages, {}", copies * shards > 1 ? ";" : ":",
                        stages, schedule_words(recipe));
  if (const int tensor = strategy.mesh[Axis::Tensor]; tensor > 1)
    line += fmt::format("{} matrices are split among {}", copies * shards > 1 ? ";" : ":", tensor);
  if (const int context = strategy.mesh[Axis::Context]; context > 1)
    line += fmt::format("; tokens of each sample are split among {}", context);
  return line;
}

std::string links_text(const plan::Candidate& candidate, const plan::DeviceProfile& device) {
  const std::vector<plan::AxisCost> costs = costs_of(candidate, device);
  if (costs.empty()) return "";
  report::Table table({{"axis", report::Align::Left},
                       {"ranks"},
                       {"collective", report::Align::Left},
                       {"calls"},
                       {"size"},
                       {"sent within a machine"},
                       {"between machines"},
                       {"s"}});
  const int64_t per_machine = engine::named_ranks_per_node(candidate.recipe);
  const plan::Network network = plan::network_of(plan::share_of(device, per_machine), per_machine);
  for (const plan::AxisCost& axis : costs)
    for (size_t o = 0; o < dist::kNumOperations; ++o) {
      const auto operation = static_cast<dist::Operation>(o);
      const dist::Traffic& traffic = axis.traffic[o];
      if (traffic.calls == 0 || operation == dist::Operation::Receive) continue;
      const plan::LinkBytes sent = plan::bytes_sent(operation, traffic.bytes, axis.place);
      table.add_row({recipe::axis_name(axis.axis), std::to_string(axis.place.size),
                     dist::name(operation), with_commas(traffic.calls), format_bytes(traffic.bytes),
                     bytes_text(sent.within), bytes_text(sent.between),
                     seconds_text(plan::seconds_of(operation, traffic, axis.place, network))});
    }
  const plan::StepCost& c = candidate.cost;
  return fmt::format(
      "Communication in one step, as sent by each rank (rings: (N-1)/N of the size of a gather or "
      "scatter, twice that for an all-reduce)\n\n{}\n{} s of collectives, of which {} s overlap "
      "with computation.\n",
      table.render(), seconds_text(c.collective_seconds),
      seconds_text(std::max(0.0, c.collective_seconds - c.exposed_collective_seconds)));
}

nlohmann::json links_json(const plan::Candidate& candidate, const plan::DeviceProfile& device) {
  nlohmann::json axes = nlohmann::json::array();
  for (const plan::AxisCost& axis : costs_of(candidate, device)) {
    nlohmann::json collectives;
    for (size_t o = 0; o < dist::kNumOperations; ++o)
      if (axis.traffic[o].calls > 0)
        collectives[dist::name(static_cast<dist::Operation>(o))] = {
            {"calls", axis.traffic[o].calls}, {"bytes", axis.traffic[o].bytes}};
    axes.push_back({{"axis", recipe::axis_name(axis.axis)},
                    {"ranks", axis.place.size},
                    {"ranks_on_machine", axis.place.on_machine},
                    {"collectives", collectives},
                    {"sent_within_machine", static_cast<int64_t>(axis.sent.within)},
                    {"sent_between_machines", static_cast<int64_t>(axis.sent.between)},
                    {"seconds", axis.seconds}});
  }
  return axes;
}

Scaling::Scaling(const models::Model& model, const recipe::Recipe& recipe,
                 const plan::Workload& work, const plan::DeviceProfile& device)
    : device_(device) {
  for (const int64_t ranks : kScales)
    for (const std::string& strategy : strategies(recipe, ranks)) {
      recipe::Recipe scaled = recipe;
      scaled.strategy = strategy;
      if (!scale_to(scaled, ranks)) continue;
      rows_.push_back({ranks, plan::evaluate_neediest(model, scaled, work, device)});
    }
}

double Scaling::tokens_per_second_of_one() const {
  return rows_.empty() || rows_.front().ranks != 1
             ? 0
             : rows_.front().candidate.cost.tokens_per_second();
}

std::string Scaling::text() const {
  report::Table table({{"devices"},
                       {"mesh", report::Align::Left},
                       {"memory"},
                       {"", report::Align::Left},
                       {"sent within"},
                       {"between"},
                       {"s/step"},
                       {"tokens/s"},
                       {"efficiency"}});
  const double alone = tokens_per_second_of_one();
  for (const auto& [ranks, candidate] : rows_) {
    const plan::StepCost& c = candidate.cost;
    table.add_row(
        {with_commas(ranks),
         ranks == 1 ? "" : recipe::mesh_text(engine::named_strategy(candidate.recipe).mesh),
         format_bytes(need(candidate, device_)),
         plan::fits(candidate, device_) ? "fits" : "does not fit", bytes_text(c.sent.within),
         bytes_text(c.sent.between), seconds_text(c.seconds()),
         fmt::format("{:.0f}", c.tokens_per_second()),
         alone == 0 ? "-"
                    : fmt::format("{:.0f} %", 100 * c.tokens_per_second() /
                                                  (alone * static_cast<double>(ranks)))});
  }
  return "More devices, with the same samples per device and step; memory and bytes are per "
         "device\n\n" +
         table.render() +
         "\nEfficiency: tokens/s per device relative to a single device, even if the model would "
         "not fit on one.\n";
}

nlohmann::json Scaling::json() const {
  nlohmann::json rows = nlohmann::json::array();
  for (const auto& [ranks, candidate] : rows_)
    rows.push_back({{"devices", ranks},
                    {"num_nodes", candidate.recipe.num_nodes},
                    {"strategy", candidate.recipe.strategy},
                    {"mesh", recipe::mesh_text(engine::named_strategy(candidate.recipe).mesh)},
                    {"fits", plan::fits(candidate, device_)},
                    {"peak_allocated", candidate.prediction.peak_allocated},
                    {"peak_reserved", candidate.prediction.peak_reserved},
                    {"sent_within_machine", static_cast<int64_t>(candidate.cost.sent.within)},
                    {"sent_between_machines", static_cast<int64_t>(candidate.cost.sent.between)},
                    {"step_seconds", candidate.cost.seconds()},
                    {"tokens_per_second", candidate.cost.tokens_per_second()}});
  return rows;
}

}  // namespace snug::plan
