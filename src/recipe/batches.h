// How many samples a step has, and on how many devices: what the batch sizes, Lightning's
// accumulate_grad_batches and limit_train_batches, and the layout of devices say together.
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

// How many devices a recipe has, and how they are laid out.
struct Layout {
  int64_t num_ranks = 1;
  MeshShape mesh;
  bool is_auto = false;  // devices = auto: as many as are found later

  bool is_sharded() const { return mesh[Axis::Shard] > 1; }
};

// None where it cannot be told, with the reason in `faults`.
std::optional<Layout> read_layout(const Recipe& recipe, std::vector<std::string>& faults);

// Whether more than one device works on the recipe; false where that cannot be told.
bool has_several_devices(const Recipe& recipe);

// Micro-batches of one optimizer step on each device.
int64_t micro_batches_of_step(const Recipe& recipe);

// train.accumulate_grad_batches makes train.global_batch_size, unless somebody chose that; and with
// both the layout, optimizer_in_backward is decided where that is auto. To be called again where
// the number of devices changes.
void resolve_batches(Recipe& recipe);

// What limit_train_batches says: a share of an epoch's micro-batches, or how many of them.
struct BatchLimit {
  double share = 1;
  int64_t count = 0;  // 0: the share counts

  // Of `batches` micro-batches, at least one.
  int64_t of(int64_t batches) const;
};
// None for what is neither: "1.0" and "0.25" are shares, "1" is one micro-batch.
std::optional<BatchLimit> batch_limit(std::string_view text);

}  // namespace snug::recipe
