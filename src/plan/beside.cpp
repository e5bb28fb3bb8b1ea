// SPDX-License-Identifier: Apache-2.0
#include "plan/beside.h"

#include <algorithm>

namespace snug::plan {
namespace {

// To add one number to another: two are read, one is written.
constexpr double kTouchesOfSum = 3;

double bytes_of(const memory::ByCategory& bytes, memory::Category category) {
  return static_cast<double>(bytes[static_cast<size_t>(category)]);
}

// As engine/policies.cpp decides it.
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
  if (recipe.activation_offload) {
    const double out =
        over_link(size.token_share * static_cast<double>(prediction.host_activations)) *
        size.micro_batches;
    add(ahead, out, out);
  }
  const double trained = size.trained_bytes;
  if (recipe.updates_on_host()) {
    // On a cpu later ones are added from where they are.
    const double copied = device.kind == at::kCUDA ? size.micro_batches : size.rounds;
    const double sums =
        kTouchesOfSum * trained * (size.micro_batches - size.rounds) / device.host_bytes_per_second;
    // An update within the backward waits for its gradients.
    add(ahead && !recipe.optimizer_in_backward, 0, over_link(trained) * copied + sums);
  }
  if (recipe.weight_streaming) {
    const double in = over_link(prediction.weight_bytes) * size.micro_batches;
    add(ahead, in, in);
  } else if (recipe.updates_on_host()) {
    all.alone += over_link(trained);  // after the update
  }
  return all;
}

UpdateCost update_cost(const recipe::Recipe& recipe, const DeviceProfile& device,
                       const Prediction& prediction, const StepSize& size, const Compute& compute) {
  const bool on_host = recipe.updates_on_host();
  const auto on_disk = static_cast<double>(prediction.on_disk);
  const double states =
      on_disk + bytes_of(on_host ? prediction.host_by_category : prediction.resident,
                         memory::Category::Optimizer);
  UpdateCost cost;
  cost.optimizer_seconds = (2 * states + 3 * size.trained_bytes) /
                           (on_host ? device.host_bytes_per_second : device.bytes_per_second);
  cost.disk_seconds =
      on_disk / device.disk_read_bytes_per_second + on_disk / device.disk_write_bytes_per_second;
  const double update = cost.optimizer_seconds, disk = cost.disk_seconds;
  // On a cpu both would want the same processors.
  const bool is_beside_next = recipe.delayed_parameter_update && device.kind == at::kCUDA;
  const double next = is_beside_next ? compute.seconds() : 0;
  cost.exposed_optimizer_seconds = std::max(0.0, update - next);
  const double both = std::max(0.0, std::max(update, disk) - next);
  cost.exposed_disk_seconds = both - cost.exposed_optimizer_seconds;
  // A unit's states are read while its last gradients are computed.
  if (recipe.optimizer_in_backward)
    cost.exposed_disk_seconds =
        std::max(0.0, cost.exposed_disk_seconds - compute.backward / size.micro_batches);
  return cost;
}

}  // namespace snug::plan
