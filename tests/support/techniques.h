// What a recipe may turn on to save memory: none of it changes what is learnt.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "support/tiny_training.h"

namespace snug::tests {

struct Technique {
  const char* name;
  void (*turn_on)(recipe::Recipe&);
};

constexpr Technique kTechniques[] = {
    {"checkpointing all", [](recipe::Recipe& r) { r.activation_checkpointing = "all"; }},
    {"checkpointing every:2", [](recipe::Recipe& r) { r.activation_checkpointing = "every:2"; }},
    {"checkpointing 1", [](recipe::Recipe& r) { r.activation_checkpointing = "1"; }},
    {"selective", [](recipe::Recipe& r) { r.activation_checkpointing = "selective"; }},
    {"activation offload", [](recipe::Recipe& r) { r.activation_offload = true; }},
    {"in backward", [](recipe::Recipe& r) { r.optimizer_in_backward = true; }},
    {"optimizer offload", [](recipe::Recipe& r) { r.optimizer_offload = "cpu"; }},
    {"optimizer offload to disk",
     [](recipe::Recipe& r) { r.optimizer_offload = tests::on_disk(); }},
    {"weight streaming",
     [](recipe::Recipe& r) {
       if (r.optimizer_offload == "none") r.optimizer_offload = "cpu";
       r.weight_streaming = true;
     }},
    // As weight streaming where there are no experts.
    {"expert streaming",
     [](recipe::Recipe& r) {
       if (r.optimizer_offload == "none") r.optimizer_offload = "cpu";
       r.weight_streaming = r.expert_streaming = true;
     }},
    {"expert streaming, prefetched",
     [](recipe::Recipe& r) {
       if (r.optimizer_offload == "none") r.optimizer_offload = "cpu";
       r.weight_streaming = r.expert_streaming = true;
       r.offload_prefetch = "true";
     }},
    // Those that do not train.
    {"weights and experts on disk, prefetched",
     [](recipe::Recipe& r) {
       if (r.optimizer_offload == "none") r.optimizer_offload = "cpu";
       r.weight_streaming = r.expert_streaming = true;
       r.weight_offload = tests::on_disk();
       r.offload_prefetch = "true";
     }},
    {"cast cache", [](recipe::Recipe& r) { r.cast_cache = true; }},
    {"all offloads, prefetched",
     [](recipe::Recipe& r) {
       if (r.optimizer_offload == "none") r.optimizer_offload = "cpu";
       r.weight_streaming = true;
       r.activation_offload = true;
       r.offload_prefetch = "true";
     }},
};

}  // namespace snug::tests
