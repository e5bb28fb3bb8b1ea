// The runs that were published, as their sources give them: which suite has each, what came of it,
// and the options that decide over its memory. A row that a suite resolves otherwise is wrong.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace snug::test {

struct PublishedRow {
  const char* suite;
  const char* id;
  const char* expected;
  const char* precision;
  const char* optimizer;
  int64_t micro_batch, global_batch;
  int64_t devices;  // over all machines
  int64_t tokens;   // of BLIP-2 with the picture's 32 places
  bool checkpointing;
  int64_t lora_rank;  // 0: all weights are trained
  const char* quantize;
  int64_t max_steps;  // 0: epochs decide
};

// clang-format off
inline constexpr PublishedRow kPublishedRows[] = {
    {"litgpt-single", "ls01-tiny-baseline", "oom", "32-true", "adamw", 32, 32, 1, 512, false, 0, "", 0},
    {"litgpt-single", "ls02-tiny-small-batch", "ok", "32-true", "adamw", 8, 8, 1, 512, false, 0, "", 0},
    {"litgpt-single", "ls03-tiny-accumulate", "ok", "32-true", "adamw", 8, 32, 1, 512, false, 0, "", 0},
    {"litgpt-single", "ls04-tiny-bf16-true", "ok", "bf16-true", "adamw", 8, 32, 1, 512, false, 0, "", 0},
    {"litgpt-single", "ls05-tiny-bf16-mixed", "ok", "bf16-mixed", "adamw", 8, 32, 1, 512, false, 0, "", 0},
    {"litgpt-single", "ls06-3b-bf16-true", "ok", "bf16-true", "adamw", 8, 32, 1, 512, false, 0, "", 0},
    {"litgpt-single", "ls07-7b-bf16-true", "ok", "bf16-true", "adamw", 4, 16, 1, 512, false, 0, "", 0},
    {"litgpt-single", "ls08-13b-adamw", "oom", "bf16-true", "adamw", 1, 1, 1, 512, false, 0, "", 0},
    {"litgpt-single", "ls09-13b-sgd", "ok", "bf16-true", "sgd", 1, 1, 1, 512, false, 0, "", 25},
    {"litgpt-single", "ls10-tiny-lora", "ok", "bf16-true", "adamw", 4, 16, 1, 512, false, 32, "", 0},
    {"litgpt-single", "ls11-3b-lora", "ok", "bf16-true", "adamw", 4, 16, 1, 512, false, 32, "", 0},
    {"litgpt-single", "ls12-7b-lora", "ok", "bf16-true", "adamw", 4, 16, 1, 512, false, 32, "", 0},
    {"litgpt-single", "ls13-7b-qlora", "ok", "bf16-true", "adamw", 4, 16, 1, 512, false, 32, "bnb.nf4", 0},
    {"litgpt-single", "ls14-13b-lora", "ok", "bf16-true", "adamw", 4, 16, 1, 512, false, 32, "", 0},
    {"litgpt-multi", "lm01-7b-1gpu", "ok", "bf16-true", "adamw", 4, 4, 1, 512, false, 0, "", 0},
    {"litgpt-multi", "lm01-7b-1gpu-accumulate", "ok", "bf16-true", "adamw", 4, 16, 1, 512, false, 0, "", 0},
    {"litgpt-multi", "lm02-7b-ddp4", "ok", "bf16-true", "adamw", 4, 16, 4, 512, false, 0, "", 0},
    {"litgpt-multi", "lm03-7b-fsdp4", "ok", "bf16-true", "adamw", 4, 16, 4, 512, false, 0, "", 0},
    {"litgpt-multi", "lm04-7b-fsdp4-batch8", "ok", "bf16-true", "adamw", 8, 32, 4, 512, false, 0, "", 0},
    {"litgpt-multi", "lm05-7b-fsdp4-batch12", "unknown", "bf16-true", "adamw", 12, 48, 4, 512, false, 0, "", 0},
    {"litgpt-multi", "lm06-13b-ds3-offload", "ok", "bf16-true", "adamw", 4, 64, 4, 512, false, 0, "", 0},
    {"blip2-single", "bs01-baseline", "oom", "32-true", "adamw", 64, 64, 1, 82, false, 0, "", 0},
    {"blip2-single", "bs02-small-batch", "ok", "32-true", "adamw", 16, 16, 1, 82, false, 0, "", 0},
    {"blip2-single", "bs03-accumulate", "ok", "32-true", "adamw", 16, 64, 1, 82, false, 0, "", 0},
    {"blip2-single", "bs04-accumulate-lr4", "ok", "32-true", "adamw", 16, 64, 1, 82, false, 0, "", 0},
    {"blip2-single", "bs05-bf16-true", "ok", "bf16-true", "adamw", 16, 64, 1, 82, false, 0, "", 0},
    {"blip2-single", "bs06-bf16-mixed", "ok", "bf16-mixed", "adamw", 16, 64, 1, 82, false, 0, "", 0},
    {"blip2-single", "bs07-larger", "ok", "bf16-true", "adamw", 32, 64, 1, 82, false, 0, "", 0},
    {"blip2-single", "bs08-xxl", "oom", "bf16-true", "adamw", 32, 64, 1, 82, false, 0, "", 0},
    {"blip2-single", "bs09-xxl-batch1", "oom", "bf16-true", "adamw", 1, 1, 1, 82, false, 0, "", 0},
    {"blip2-single", "bs10-xxl-sgd", "ok", "bf16-true", "sgd", 32, 64, 1, 82, false, 0, "", 0},
    {"blip2-single", "bs11-xxl-adam8bit", "ok", "bf16-true", "adamw_8bit", 2, 4, 1, 82, false, 0, "", 0},
    {"blip2-single", "bs12-xxl-actckpt", "ok", "bf16-true", "adamw_8bit", 2, 4, 1, 82, true, 0, "", 0},
    {"blip2-single", "bs13-xxl-ds2-offload", "ok", "bf16-true", "adamw", 32, 64, 1, 82, false, 0, "", 2},
    {"blip2-peft", "bp01-xxl-lora", "ok", "32-true", "adamw", 32, 64, 1, 82, false, 16, "", 0},
    {"blip2-peft", "bp02-xxl-qlora", "ok", "32-true", "adamw", 64, 64, 1, 82, true, 16, "bnb.nf4", 0},
    {"blip2-multi", "bm01-1gpu", "ok", "bf16-true", "adamw", 16, 64, 1, 82, false, 0, "", 0},
    {"blip2-multi", "bm02-ddp4", "ok", "bf16-true", "adamw", 16, 256, 4, 82, false, 0, "", 0},
    {"blip2-multi", "bm03-fsdp4", "ok", "bf16-true", "adamw", 16, 256, 4, 82, false, 0, "", 0},
    {"fsdp-sweep", "fs-xl-base-b1", "ok", "16-mixed", "adamw", 1, 4, 4, 128, false, 0, "", 100},
    {"fsdp-sweep", "fs-xl-base-b2", "ok", "16-mixed", "adamw", 2, 8, 4, 128, false, 0, "", 100},
    {"fsdp-sweep", "fs-xl-base-b4", "ok", "16-mixed", "adamw", 4, 16, 4, 128, false, 0, "", 100},
    {"fsdp-sweep", "fs-xl-base-b7", "ok", "16-mixed", "adamw", 7, 28, 4, 128, false, 0, "", 100},
    {"fsdp-sweep", "fs-xl-base-b8", "ok", "16-mixed", "adamw", 8, 32, 4, 128, false, 0, "", 100},
    {"fsdp-sweep", "fs-xl-base-b9", "oom", "16-mixed", "adamw", 9, 36, 4, 128, false, 0, "", 100},
    {"fsdp-sweep", "fs-xl-ckpt-b8", "ok", "16-mixed", "adamw", 8, 32, 4, 128, true, 0, "", 100},
    {"fsdp-sweep", "fs-xl-ckpt-b16", "ok", "16-mixed", "adamw", 16, 64, 4, 128, true, 0, "", 100},
    {"fsdp-sweep", "fs-xl-ckpt-b32", "ok", "16-mixed", "adamw", 32, 128, 4, 128, true, 0, "", 100},
    {"fsdp-sweep", "fs-xl-ckpt-b64", "ok", "16-mixed", "adamw", 64, 256, 4, 128, true, 0, "", 100},
    {"fsdp-sweep", "fs-xl-ckpt-prefetch-b64", "ok", "16-mixed", "adamw", 64, 256, 4, 128, true, 0, "", 100},
    {"fsdp-sweep", "fs-xxl-ckpt-b8", "ok", "16-mixed", "adamw", 8, 32, 4, 128, true, 0, "", 100},
    {"fsdp-sweep", "fs-xxl-ckpt-b16", "ok", "16-mixed", "adamw", 16, 64, 4, 128, true, 0, "", 100},
    {"fsdp-sweep", "fs-xxl-ckpt-b32", "ok", "16-mixed", "adamw", 32, 128, 4, 128, true, 0, "", 100},
    {"fsdp-sweep", "fs-multinode-4gpu", "ok", "16-mixed", "adamw", 16, 64, 4, 128, true, 0, "", 30},
    {"fsdp-sweep", "fs-multinode-8gpu", "ok", "16-mixed", "adamw", 16, 128, 8, 128, true, 0, "", 30},
    {"fsdp-sweep", "fs-multinode-16gpu", "ok", "16-mixed", "adamw", 16, 256, 16, 128, true, 0, "", 30},
    {"litgpt-v100", "v100-tiny-1gpu", "ok", "bf16-true", "adamw", 8, 32, 1, 512, false, 0, "", 0},
    {"litgpt-v100", "v100-tiny-ddp4", "ok", "bf16-true", "adamw", 8, 128, 4, 512, false, 0, "", 0},
    {"litgpt-v100", "v100-tiny-fsdp4", "ok", "bf16-true", "adamw", 8, 128, 4, 512, false, 0, "", 0},
    {"litgpt-v100", "v100-3b-fsdp4", "ok", "bf16-true", "adamw", 1, 4, 4, 512, false, 0, "", 0},
    {"litgpt-v100", "v100-3b-1gpu", "oom", "bf16-true", "adamw", 1, 1, 1, 512, false, 0, "", 0},
};
// clang-format on

}  // namespace snug::test
