// SPDX-License-Identifier: Apache-2.0
#include "plan/cost_model.h"

#include <algorithm>

#include "core/nn/precision.h"
#include "engine/exec/pipeline_schedule.h"
#include "engine/parallel/stages.h"
#include "engine/strategy.h"
#include "engine/techniques/behaviour.h"
#include "models/family.h"
#include "recipe/tables/objectives.h"
#include "recipe/techniques/checkpointing.h"

namespace snug::plan {
namespace {

// Every byte that an operator writes is read by the next one.
constexpr double kTouches = 2;

// The time of a cudaMalloc or cudaFree in a step, with the device stopped: fitted on two published
// steps with such calls beside steps without (recipes/lab/fsdp-sweep.yaml: fs-xl-base-b8,
// fs-xxl-ckpt-b32).
constexpr double kSecondsPerDriverCall = 3e-3;

// Operations of a token in a model's own attention, as in Model::flops_per_token(). What encoders
// beside it have is little, and counts as products.
double attention_flops(const models::Model& model, double seqlen) {
  const models::Dimensions d = model.dimensions();
  return 6.0 * static_cast<double>(d.num_layers * d.num_heads * d.head_dim) * seqlen;
}

// Share of the blocks whose forward runs twice.
double recomputed_share(const recipe::Recipe& recipe, const models::Model& model) {
  const auto num_blocks = std::ranges::count(const_cast<models::Model&>(model).units(),
                                             nn::UnitKind::Block, &nn::Unit::kind);
  const std::vector<bool> chosen = recipe::repeated_blocks(recipe, num_blocks);
  const auto count = std::count(chosen.begin(), chosen.end(), true);
  return num_blocks > 0 ? static_cast<double>(count) / static_cast<double>(num_blocks) : 0;
}

// How much longer the stage of a pipeline takes that has most to compute.
double slowest_stage(const recipe::Recipe& recipe, const models::Model& model, int64_t stages) {
  if (stages == 1) return 1;
  const auto twin = models::model_like(model);
  const auto units = twin->units();
  return engine::most_of_a_stage(units,
                                 engine::deal_units(units, stages, recipe.pipeline_interleave));
}

// Operations of a token in the first two of its experts' three matrices, which the backward repeats
// where experts are spread over ranks (core/ops/linear/experts.h).
double repeated_flops_of_experts(const models::Model& model, const dist::MeshShape& mesh) {
  if (mesh[dist::Axis::Expert] == 1) return 0;
  const auto twin = models::model_like(model);
  int64_t elements = 0;
  for (nn::Unit* unit : twin->units())
    for (const auto& expert : unit->experts())
      for (const nn::Parameter* parameter : expert) elements += parameter->num_elements();
  const models::Routing routing = model.routing();
  return 2.0 * 2 / 3 * static_cast<double>(elements * routing.per_token) /
         static_cast<double>(routing.num_experts);
}

// Collectives of the shard and replicate axes, by the part of a step that they run beside.
Beside collectives_beside(const recipe::Recipe& recipe, exec::ShardingStage stage,
                          const AxisCost& axis, const Network& network) {
  using dist::Axis;
  using dist::Operation;
  Beside beside;
  const auto seconds = [&](Operation operation) {
    return seconds_of(operation, axis.traffic[static_cast<size_t>(operation)], axis.place, network);
  };
  // A stage receives one step ahead of the computation; both ways send as much.
  if (axis.axis == Axis::Pipeline) return {axis.seconds / 2, axis.seconds / 2, 0};
  if (axis.axis != Axis::Shard && axis.axis != Axis::Replicate) {
    beside.alone = axis.seconds;  // tensor, context, expert: the next operator needs them
    return beside;
  }
  // Weights are gathered for forward and for backward; after an update they are sent once, and
  // arrive while the next forward runs.
  const double gathers = seconds(Operation::AllGather) + seconds(Operation::Broadcast);
  const bool twice = stage == exec::ShardingStage::Weights;
  const double forward = twice ? gathers / 2 : gathers, backward = gathers - forward;
  (recipe.forward_prefetch || !twice ? beside.forward : beside.alone) += forward;
  (recipe.backward_prefetch ? beside.backward : beside.alone) += backward;
  // Gradients are summed while the previous unit computes its own.
  const bool sums_overlap = !engine::updates_in_sweep(recipe);
  (sums_overlap ? beside.backward : beside.alone) +=
      seconds(Operation::ReduceScatter) + seconds(Operation::AllReduce);
  return beside;
}

// The group whose collectives count for an axis: shards span the context axis too, copies the
// expert axis, and without shards gradients are summed over all data axes.
std::vector<int> members_of(const Prediction& prediction, const dist::MeshShape& mesh,
                            dist::Axis axis, int rank) {
  const auto calls = [&](dist::Axis of, dist::Operation operation) {
    return prediction.traffic[static_cast<size_t>(of)][static_cast<size_t>(operation)].calls;
  };
  if (axis == dist::Axis::Shard) return mesh.shard_members(rank);
  if (axis == dist::Axis::Replicate &&
      calls(dist::Axis::Shard, dist::Operation::ReduceScatter) == 0)
    return mesh.gradient_members(rank);
  if (axis == dist::Axis::Replicate)
    return mesh.members({dist::Axis::Replicate, dist::Axis::Expert}, rank);
  return mesh.members(axis, rank);
}

}  // namespace

std::vector<AxisCost> axis_costs(const Prediction& prediction, const dist::MeshShape& mesh,
                                 int rank, const Network& network) {
  std::vector<AxisCost> costs;
  for (size_t i = 0; i < dist::kNumAxes; ++i) {
    const auto axis = static_cast<dist::Axis>(i);
    AxisCost cost{.axis = axis,
                  .place = place_of(members_of(prediction, mesh, axis, rank), rank,
                                    network.ranks_per_machine),
                  .traffic = prediction.traffic[i]};
    int64_t calls = 0;
    for (size_t o = 0; o < dist::kNumOperations; ++o) {
      const auto operation = static_cast<dist::Operation>(o);
      calls += cost.traffic[o].calls;
      cost.sent += bytes_sent(operation, cost.traffic[o].bytes, cost.place);
      cost.seconds += seconds_of(operation, cost.traffic[o], cost.place, network);
    }
    if (calls > 0) costs.push_back(cost);
  }
  return costs;
}

namespace {

Beside all_collectives(const recipe::Recipe& recipe, const engine::Strategy& strategy,
                       const DeviceProfile& device, const std::vector<AxisCost>& axes) {
  const Network network = network_of(device, engine::named_ranks_per_node(recipe));
  Beside all;
  for (const AxisCost& axis : axes)
    all += collectives_beside(recipe, strategy.stage, axis, network);
  // On a cpu the processors that would sum and copy are those that compute.
  return device.kind == at::kCPU ? Beside{.alone = all.seconds()} : all;
}

// Both wait for the same computation.
void add_transfers(StepCost& cost, const Beside& collectives, const Beside& copies,
                   const Compute& compute) {
  cost.transfer_seconds = copies.seconds();
  Beside both = collectives;
  both += copies;
  cost.exposed_collective_seconds = collectives.exposed(compute);
  cost.exposed_transfer_seconds = both.exposed(compute) - cost.exposed_collective_seconds;
}

void add_update(StepCost& cost, const UpdateCost& update) {
  cost.optimizer_seconds = update.optimizer_seconds;
  cost.disk_seconds = update.disk_seconds;
  cost.exposed_optimizer_seconds = update.exposed_optimizer_seconds;
  cost.exposed_disk_seconds = update.exposed_disk_seconds;
}

}  // namespace

StepCost step_cost(const models::Model& model, const recipe::Recipe& recipe,
                   const DeviceProfile& whole_device, const Prediction& prediction, double tokens,
                   const DocumentSize& document, int rank) {
  const nn::Precision precision = nn::parse_precision(recipe.precision);
  const engine::Strategy strategy = engine::named_strategy(recipe);
  const int64_t ranks_per_machine = engine::named_ranks_per_node(recipe);
  const DeviceProfile device = share_of(whole_device, ranks_per_machine);
  // Where a sweep updates, clipping measures in one before it.
  const double rounds =
      engine::updates_in_sweep(recipe) && recipe.train.max_norm.value_or(0) > 0 ? 2 : 1;
  const double micro_batches =
      rounds * static_cast<double>(engine::micro_batches_of_step(recipe, strategy.mesh));
  StepCost cost{.tokens = tokens * micro_batches / rounds *
                          static_cast<double>(strategy.mesh.num_data_ranks())};
  // The prediction is of the longest batch, the time of an average one.
  const double share = tokens / static_cast<double>(std::max<int64_t>(1, prediction.tokens));
  // Forward, gradients of inputs, and gradients of weights, which frozen weights lack.
  const double forward = recipe.lora.enabled ? 1.0 / 2 : 1.0 / 3;
  // Before a step's first round other documents go forward, which are about as long.
  const double of_others = recipe::learns_from_ratings(recipe.objective.name) ? 1 / rounds : 0;
  const double repeated = 1 + (recomputed_share(recipe, model) + of_others) * forward;
  // Ranks along these axes share the work on the same samples.
  const int sharing = strategy.mesh[dist::Axis::Pipeline] * strategy.mesh[dist::Axis::Context] *
                      strategy.mesh[dist::Axis::Tensor];
  const int stages = strategy.mesh[dist::Axis::Pipeline];
  const double flops = device.flops(precision.compute, recipe.matmul_precision);
  const double per_token = model.flops_per_token(document.tokens, document.pictures);
  const double of_attention = std::min(per_token, attention_flops(model, document.tokens));
  const auto seconds_of_flops = [&](double of_token, double efficiency) {
    return of_token * tokens * micro_batches * repeated * slowest_stage(recipe, model, stages) /
           (flops * efficiency * sharing);
  };
  const double again = repeated_flops_of_experts(model, strategy.mesh) / repeated;
  cost.products_seconds =
      seconds_of_flops(per_token - of_attention + again, device.product_efficiency);
  cost.attention_seconds = seconds_of_flops(of_attention, device.attention_efficiency);
  cost.model_flops = per_token * cost.tokens;
  // Processes on a cpu share its peak.
  cost.peak_flops_per_second = flops * static_cast<double>(strategy.mesh.num_ranks());
  cost.memory_seconds = kTouches * share * static_cast<double>(prediction.bytes_written) *
                        micro_batches / static_cast<double>(prediction.micro_batches) /
                        (device.bytes_per_second * device.memory_efficiency);
  const double computing = cost.products_seconds + cost.attention_seconds + cost.memory_seconds;
  const double once = forward * (1 + of_others);
  const Compute compute{.forward = computing * once / repeated,
                        .backward = computing * (1 - once / repeated)};
  const bool updates_part = strategy.stage >= exec::ShardingStage::OptimizerStates;
  const StepSize size{
      .micro_batches = micro_batches,
      .rounds = rounds,
      .token_share = share,
      .trained_bytes = prediction.trained_bytes / (updates_part ? strategy.mesh.num_shards() : 1),
      .recomputed = recomputed_share(recipe, model)};
  add_update(cost, update_cost(recipe, device, prediction, size, compute));
  const std::vector<AxisCost> axes =
      axis_costs(prediction, strategy.mesh, rank, network_of(device, ranks_per_machine));
  for (const AxisCost& axis : axes) {
    cost.collective_seconds += axis.seconds;
    cost.sent += axis.sent;
  }
  add_transfers(cost, all_collectives(recipe, strategy, device, axes),
                host_copies(recipe, device, prediction, size), compute);
  // The first micro-batch reaches the last stage, and the last one the first, with all others idle.
  const exec::PipelineShape pipeline{
      .stages = stages,
      .chunks = stages > 1 ? recipe.pipeline_interleave : 1,
      .micro_batches = engine::micro_batches_of_step(recipe, strategy.mesh),
      .order = engine::pipeline_order(recipe)};
  cost.idle_seconds = computing * (exec::pipeline_length(pipeline) - 1);
  const DriverCalls& calls = prediction.driver_calls;
  cost.retry_seconds = kSecondsPerDriverCall * static_cast<double>(calls.gets + calls.gives);
  return cost;
}

namespace {

// To add one number to another: two are read, one is written.
constexpr double kTouchesOfSum = 3;

double bytes_of(const memory::ByCategory& bytes, memory::Category category) {
  return static_cast<double>(bytes[static_cast<size_t>(category)]);
}

// Host memory beside what the run takes; 0: not known.
double spare_host_bytes(const DeviceProfile& device, const Prediction& prediction) {
  const int64_t there = device.host_bytes > 0 ? device.host_bytes : device.assumed_host_bytes;
  const int64_t of_device = device.kind == at::kCPU ? prediction.peak_allocated : 0;
  return static_cast<double>(std::max<int64_t>(0, there - prediction.peak_host - of_device));
}

// As engine::prefetches() decides it.
bool copies_ahead(const recipe::Recipe& recipe, const DeviceProfile& device) {
  return device.kind == at::kCUDA && recipe.offload_prefetch != recipe::Prefetch::Off;
}

}  // namespace

Beside& Beside::operator+=(const Beside& other) {
  forward += other.forward;
  backward += other.backward;
  alone += other.alone;
  return *this;
}

double Beside::exposed(const Compute& compute) const {
  return alone + std::max(0.0, forward - compute.forward) +
         std::max(0.0, backward - compute.backward);
}

Beside host_copies(const recipe::Recipe& recipe, const DeviceProfile& device,
                   const Prediction& prediction, const StepSize& size) {
  const bool ahead = copies_ahead(recipe, device);
  Beside all;
  const auto add = [&](bool hides, double forward, double backward) {
    if (hides)
      all += {.forward = forward, .backward = backward};
    else
      all.alone += forward + backward;
  };
  const auto over_link = [&](double bytes) { return bytes / device.link_bytes_per_second; };
  if (recipe.offloads_activations()) {
    const double out =
        over_link(size.token_share * static_cast<double>(prediction.host_activations)) *
        size.micro_batches;
    add(ahead, out, out);
  }
  const double trained = size.trained_bytes;
  if (recipe.updates_on_host()) {
    // On a CPU later gradients are added in place.
    const double copied = device.kind == at::kCUDA ? size.micro_batches : size.rounds;
    const double sums =
        kTouchesOfSum * trained * (size.micro_batches - size.rounds) / device.host_bytes_per_second;
    // An update within the backward waits for its gradients.
    add(ahead && !engine::updates_in_sweep(recipe), 0, over_link(trained) * copied + sums);
  }
  if (recipe.streams_weights()) {
    const double in = over_link(prediction.weight_bytes) * size.micro_batches;
    // Experts that come one by one are gone when a block's backward has computed it again.
    const double again = recipe.streams_experts() ? size.recomputed * size.micro_batches *
                                                        over_link(prediction.expert_bytes)
                                                  : 0;
    // The system keeps in spare memory what it has last read of weights in a file; a pass begins
    // with those: they go through the units forward and backward in turn.
    const double read = std::max(0.0, static_cast<double>(prediction.weights_on_disk) -
                                          spare_host_bytes(device, prediction)) /
                        device.disk_read_bytes_per_second * size.micro_batches;
    if (ahead) {
      add(true, std::max(in, read), std::max(in + again, read));
    } else {
      add(false, in, in + again);
      add(true, read, read);
    }
  } else if (recipe.updates_on_host()) {
    all.alone += over_link(trained);  // after the update
  }
  return all;
}

UpdateCost update_cost(const recipe::Recipe& recipe, const DeviceProfile& device,
                       const Prediction& prediction, const StepSize& size, const Compute& compute) {
  const bool on_host = recipe.updates_on_host();
  const auto on_disk = static_cast<double>(prediction.on_disk - prediction.weights_on_disk);
  const double states =
      on_disk + bytes_of(on_host ? prediction.host_by_category : prediction.resident,
                         memory::Category::Optimizer);
  UpdateCost cost;
  cost.optimizer_seconds =
      (2 * states + 3 * size.trained_bytes) /
      (on_host ? device.host_bytes_per_second : device.bytes_per_second * device.memory_efficiency);
  cost.disk_seconds =
      on_disk / device.disk_read_bytes_per_second + on_disk / device.disk_write_bytes_per_second;
  const double update = cost.optimizer_seconds, disk = cost.disk_seconds;
  // On a cpu both would want the same processors.
  const bool is_beside_next = engine::updates_late(recipe) && device.kind == at::kCUDA;
  const double next = is_beside_next ? compute.seconds() : 0;
  cost.exposed_optimizer_seconds = std::max(0.0, update - next);
  const double both = std::max(0.0, std::max(update, disk) - next);
  cost.exposed_disk_seconds = both - cost.exposed_optimizer_seconds;
  // A unit's states are read while its last gradients are computed.
  if (engine::updates_in_sweep(recipe))
    cost.exposed_disk_seconds =
        std::max(0.0, cost.exposed_disk_seconds - compute.backward / size.micro_batches);
  return cost;
}

}  // namespace snug::plan
