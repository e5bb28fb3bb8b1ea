// SPDX-License-Identifier: Apache-2.0
#include "train/out_dir/disk_room.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/bytes.h"
#include "base/error.h"

namespace snug::train {
namespace {

// Those that are left when all are written, beyond those that were there.
int64_t left_at_the_end(const DiskNeed& need) {
  const int64_t all = need.num_there + need.num_checkpoints;
  return std::max<int64_t>(0, (need.keep ? std::min(all, *need.keep) : all) - need.num_there);
}

// With how many kept it would fit; 0: with none.
int64_t keep_that_fits(DiskNeed need, int64_t free_bytes) {
  need.keep = most_checkpoints(need);
  while (*need.keep > 0 && most_bytes(need) > free_bytes) --*need.keep;
  return *need.keep;
}

}  // namespace

int64_t checkpoints_to_write(const recipe::Recipe& recipe, int64_t step, int64_t last_step) {
  const int64_t interval = recipe.train.save_interval.value_or(0);
  return interval <= 0 ? 0 : std::max<int64_t>(0, last_step / interval - step / interval);
}

int64_t most_checkpoints(const DiskNeed& need) {
  if (need.num_checkpoints == 0) return 0;
  const bool one_goes = need.keep && need.num_there + need.num_checkpoints > *need.keep;
  return left_at_the_end(need) + (one_goes ? 1 : 0);
}

// The model is written when the last checkpoint is whole and older ones are gone.
int64_t most_bytes(const DiskNeed& need) {
  return std::max(most_checkpoints(need) * need.checkpoint_bytes,
                  left_at_the_end(need) * need.checkpoint_bytes + need.model_bytes);
}

std::string check_room(const DiskNeed& need, int64_t free_bytes, const std::string& out_dir) {
  if (need.model_bytes > free_bytes)
    throw UserError(
        "the disk of {} has no room for the trained model: it takes {}, and {} is free; free some "
        "space, choose another --out_dir, or do not write the model: --train.save_model false",
        out_dir, format_bytes(need.model_bytes), format_bytes(free_bytes));
  if (need.num_checkpoints == 0 || most_bytes(need) <= free_bytes) return "";
  const int64_t most = most_checkpoints(need), keep = keep_that_fits(need, free_bytes);
  const std::string model =
      need.model_bytes > 0 ? fmt::format(" and the model of {}", format_bytes(need.model_bytes))
                           : "";
  return fmt::format(
      "this run will fill the disk of {}: {} checkpoint{} of {}{} need {}, and {} is free; {}write "
      "none with --train.save_interval none, or choose another --out_dir",
      out_dir, most, most == 1 ? "" : "s", format_bytes(need.checkpoint_bytes), model,
      format_bytes(most_bytes(need)), format_bytes(free_bytes),
      keep > 0 ? fmt::format("keep fewer with --train.keep_checkpoints {}, ", keep) : "");
}

}  // namespace snug::train
