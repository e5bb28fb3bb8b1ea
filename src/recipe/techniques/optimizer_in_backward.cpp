// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "recipe/batches.h"
#include "recipe/techniques/technique.h"

namespace snug::recipe {

namespace {

// Whether updating in the backward saves memory and costs no time: no communication and no copy to
// the host, which run beside the backward, has to wait for it.
bool is_free_in_backward(Recipe recipe) {
  recipe.optimizer_in_backward = false;
  return recipe.devices != "auto" && !has_several_devices(recipe) && !recipe.updates_on_host() &&
         turn_on(technique_of("optimizer_in_backward"), recipe);
}

// Gradients that are accumulated over micro-batches stay in memory until the last backward.
std::string with_several_micro_batches(const Recipe& r) {
  const int64_t micro_batches = micro_batches_of_step(r);
  if (micro_batches == 1) return {};
  return fmt::format(
      "optimizer_in_backward = true with {} micro-batches a step (train.global_batch_size {}, "
      "train.micro_batch_size {}): gradients are accumulated over the micro-batches, so all of "
      "them stay in memory and nothing is saved; leave it out, or use a global batch of one "
      "micro-batch",
      micro_batches, r.train.global_batch_size, r.train.micro_batch_size);
}

}  // namespace

Technique optimizer_in_backward() {
  return {
      .key = "optimizer_in_backward",
      .option =
          [](Recipe& r) {
            return Row{
                .key = "optimizer_in_backward",
                .slot = &r.optimizer_in_backward,
                .help =
                    "update each block as soon as its gradients are complete, then free them; "
                    "auto: only where this changes neither results nor speed, that is on one "
                    "device, without optimizer_offload and with one micro-batch per step, but "
                    "not with train.max_norm, precision 16-mixed or train.on_oom split",
                .automatic = &r.optimizer_in_backward_is_auto};
          },
      .settle =
          [](Recipe& r) {
            if (r.optimizer_in_backward_is_auto) r.optimizer_in_backward = is_free_in_backward(r);
          },
      .conditions =
          {{[](const Recipe& r) { return r.precision != Precision::MixedFloat16; },
            "optimizer_in_backward = true: precision 16-mixed skips a step whose gradients "
            "overflow, which is known only once all gradients are computed; use bf16-mixed"},
           {[](const Recipe& r) { return r.train.on_oom != OnOom::Split; },
            "train.on_oom = split: a failed step cannot be repeated after optimizer_in_backward "
            "has updated some blocks; use train.on_oom stop"}},
      .advice = with_several_micro_batches,
      .values = {"false", "true"},
      .for_one_micro_batch = true,
      .cost = TimeCost::Nothing,
      .cost_words = "same training at about the same speed",
      // Clipping takes a second backward, and accumulated gradients cannot be freed early; those
      // that are updated on the host leave the device sooner all the same.
      .saves =
          [](const Recipe& r) {
            return r.updates_on_host() ||
                   (r.train.max_norm.value_or(0) == 0 && micro_batches_of_step(r) == 1);
          }};
}

}  // namespace snug::recipe
