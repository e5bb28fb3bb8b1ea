// What a rank that trains says of itself, every field of it filled.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/bytes.h"
#include "report/live_status.h"

namespace snug::test {

inline report::LiveState training_rank(int rank = 0, int world_size = 1) {
  report::LiveState live;
  live.state = "training";
  live.pid = 1000 + rank;
  live.rank = rank;
  live.world_size = world_size;
  live.started = 100;
  live.time = 200.5;
  live.command = "snug finetune_full checkpoints/some/model --data JSON --data.json_path rows.json";
  live.model = "checkpoints/some/model";
  live.device = "NVIDIA A100-SXM4-40GB, 39.39 GiB";
  live.host = "node1";
  live.step = 12;
  live.total_steps = 40;
  live.loss = 2.3125;
  live.losses = {4, 3.5, 3, 2.75, 2.5, 2.3125};
  live.tokens_per_second = 12345;
  live.share_of_peak = 0.41;
  live.step_seconds = 0.83;
  live.seconds_left = 23;
  live.allocated = 7 * kGiB;
  live.peak = 14 * kGiB;
  live.budget = 20 * kGiB;
  live.predicted_peak = 15 * kGiB;
  for (const char* category : {"parameters", "gradients", "optimizer", "activations", "workspace",
                               "communication", "data"}) {
    live.by_category[category] = kGiB;
    live.peak_by_category[category] = 2 * kGiB;
  }
  return live;
}

}  // namespace snug::test
