// The samples of a step and the devices that share them, from the batch sizes, Lightning's
// accumulate_grad_batches and limit_train_batches, and the device mesh.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "recipe/mesh.h"
#include "recipe/recipe.h"

namespace snug::recipe {

// The devices of a recipe and their mesh.
struct Layout {
  int64_t num_ranks = 1;
  MeshShape mesh;
  bool is_auto = false;  // devices = auto: the number is found later

  bool is_sharded() const { return mesh[Axis::Shard] > 1; }
};

// std::nullopt if the recipe is faulty; the reason is then added to `faults`.
std::optional<Layout> read_layout(const Recipe& recipe, std::vector<std::string>& faults);

// Whether the recipe uses more than one device; false if it is faulty.
bool has_several_devices(const Recipe& recipe);

// Micro-batches of one optimizer step on each device.
int64_t micro_batches_of_step(const Recipe& recipe);

// Computes train.global_batch_size from train.accumulate_grad_batches if it was not set, and
// decides techniques that are auto. Call it again when the number of devices changes.
void resolve_batches(Recipe& recipe);

// limit_train_batches: a share of an epoch's micro-batches, or a number of them.
struct BatchLimit {
  double share = 1;
  int64_t count = 0;  // 0: the share counts

  // The share of `batches` micro-batches, at least one.
  int64_t of(int64_t batches) const;
};
// "1.0" and "0.25" are shares, "1" is one micro-batch; std::nullopt for anything else.
std::optional<BatchLimit> batch_limit(std::string_view text);

}  // namespace snug::recipe
