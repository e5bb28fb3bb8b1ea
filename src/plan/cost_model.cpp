// SPDX-License-Identifier: Apache-2.0
#include "plan/cost_model.h"

#include <algorithm>

#include "config/unit_choice.h"
#include "nn/precision.h"

namespace snug::plan {
namespace {

// Every byte that an operator writes is read about twice: by the next one and on the way back.
constexpr double kTouches = 3;

double bytes_of(const memory::ByCategory& bytes, memory::Category category) {
  return static_cast<double>(bytes[static_cast<size_t>(category)]);
}

// Share of the blocks whose forward runs twice.
double recomputed_share(const config::Recipe& recipe, int64_t num_blocks) {
  const std::vector<bool> chosen =
      config::chosen_blocks(recipe.activation_checkpointing, num_blocks);
  const auto count = std::count(chosen.begin(), chosen.end(), true);
  return num_blocks > 0 ? static_cast<double>(count) / static_cast<double>(num_blocks) : 0;
}

}  // namespace

StepCost step_cost(const models::Model& model, const config::Recipe& recipe,
                   const DeviceProfile& device, const Prediction& prediction, double tokens,
                   double seqlen) {
  using memory::Category;
  const nn::Precision precision = nn::parse_precision(recipe.precision);
  const bool on_host = recipe.optimizer_offload != "none";
  // Clipping with the optimizer in backward runs everything twice.
  const double rounds =
      recipe.optimizer_in_backward && recipe.train.max_norm.value_or(0) > 0 ? 2 : 1;
  const double micro_batches =
      rounds * static_cast<double>(std::max<int64_t>(
                   1, recipe.train.global_batch_size / recipe.train.micro_batch_size));
  StepCost cost{.tokens = tokens * micro_batches / rounds};
  // The prediction is of the longest batch, the time of an average one.
  const double share = tokens / static_cast<double>(std::max<int64_t>(1, prediction.tokens));
  // Of forward, gradients of inputs and those of weights, which frozen ones do not have.
  const double forward = recipe.lora.enabled ? 1.0 / 2 : 1.0 / 3;
  const double repeated = 1 + recomputed_share(recipe, model.dimensions().num_layers) * forward;
  cost.products_seconds = model.flops_per_token(seqlen) * tokens * micro_batches * repeated /
                          (device.flops(precision.compute) * device.product_efficiency);
  cost.memory_seconds = kTouches * share * static_cast<double>(prediction.bytes_written) *
                        micro_batches / static_cast<double>(prediction.micro_batches) /
                        device.bytes_per_second;
  // States, weights and gradients are read, the first two written.
  const memory::ByCategory& where = on_host ? prediction.host_by_category : prediction.resident;
  const double states =
      bytes_of(where, Category::Optimizer) + static_cast<double>(prediction.on_disk);
  const double trained = prediction.trained_bytes;
  cost.optimizer_seconds = (2 * states + 3 * trained) /
                           (on_host ? device.host_bytes_per_second : device.bytes_per_second);
  double moved = 0;
  if (recipe.activation_offload)
    moved +=
        2 * share * bytes_of(prediction.host_by_category, Category::Activations) * micro_batches;
  if (on_host) moved += trained * micro_batches;  // gradients out
  if (recipe.weight_streaming)
    moved += 2 * prediction.weight_bytes * micro_batches;
  else if (on_host)
    moved += trained;
  cost.transfer_seconds = moved / device.link_bytes_per_second;
  return cost;
}

}  // namespace snug::plan
