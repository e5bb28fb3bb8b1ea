// Recipes of all techniques at random, for what must hold for any of them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "support/tiny_training.h"

namespace snug::tests {

inline recipe::Recipe random_recipe(std::mt19937& random) {
  const auto pick = [&](std::initializer_list<const char*> choices) {
    return *(choices.begin() + random() % choices.size());
  };
  recipe::Recipe recipe = tiny_recipe();
  recipe.precision = pick({"32-true", "bf16-true", "16-true", "bf16-mixed", "16-mixed"});
  recipe.optimizer.name = pick({"adamw", "sgd", "adamw_8bit", "adafactor", "lion"});
  recipe.optimizer.momentum = random() % 2 ? 0.9 : 0.0;
  recipe.optimizer.master_weights = recipe.precision.ends_with("16-true") && random() % 2;
  recipe.activation_checkpointing = pick({"none", "none", "all", "selective", "every:2", "1"});
  recipe.activation_offload = random() % 3 == 0;
  recipe.optimizer_in_backward = recipe.precision != "16-mixed" && random() % 3 == 0;
  recipe.optimizer_offload = pick({"none", "cpu", "disk"});
  if (recipe.optimizer_offload == "disk") recipe.optimizer_offload = on_disk();
  recipe.weight_streaming = recipe.optimizer_offload != "none" && random() % 2;
  recipe.delayed_parameter_update = recipe.optimizer_offload != "none" &&
                                    !recipe.weight_streaming && !recipe.optimizer_in_backward &&
                                    random() % 2;
  recipe.cast_cache =
      recipe.precision.ends_with("-mixed") && !recipe.weight_streaming && random() % 2;
  recipe.offload_prefetch = pick({"auto", "true"});
  if (random() % 2) recipe.train.max_norm = 1.0;
  recipe.data.packing = random() % 2 == 0;
  recipe.train.micro_batch_size = int64_t{1} << (random() % 4);
  if (random() % 2) {
    recipe.lora = {.enabled = true, .r = 1 + static_cast<int64_t>(random() % 9)};
    recipe.lora.dropout = random() % 2 ? 0.1 : 0.0;
    recipe.lora.head = random() % 3 == 0;
    recipe.lora.mlp = random() % 2;
    recipe.lora.use_dora = random() % 3 == 0;
    if (random() % 4 == 0) recipe.lora.target_modules = R"(.*layers\.1\..*_proj)";
    recipe.quantize = pick({"", "", "bnb.nf4", "bnb.nf4-dq", "bnb.fp4", "bnb.fp4-dq", "bnb.int8"});
  }
  recipe.expert_streaming = recipe.weight_streaming && random() % 2;
  if (recipe.weight_streaming && recipe.lora.enabled && random() % 2)
    recipe.weight_offload = on_disk();
  return recipe;
}

// In a fourth of the recipes an objective that compares answers or has a teacher, in some of the
// others blocks of text; the samples that they learn from.
inline data::SampleStore with_objective(recipe::Recipe& recipe, int count, int longest,
                                        std::mt19937& random) {
  constexpr const char* kNames[] = {"dpo",   "ipo", "hinge", "orpo",
                                    "simpo", "cpo", "kto",   "distill"};
  if (random() % 4 != 0) {
    data::SampleStore samples = random_samples(count, longest, random());
    std::vector<int64_t> numbers(static_cast<size_t>(samples.count()));
    if (recipe.data.packing && random() % 4 == 0)
      samples.cut_into_blocks({.length = longest / 2, .joins = true}, numbers);
    return samples;
  }
  recipe.objective = recipe::objective_defaults(kNames[random() % std::size(kNames)]);
  if (recipe.objective.name == recipe::ObjectiveName::Distill)
    recipe.objective.top_k = 1 + static_cast<int64_t>(random() % 8);
  recipe.objective.share_prompt =
      recipe::learns_from_pairs(recipe.objective.name) && random() % 2 == 0;
  return random_answers(count, longest, random(), recipe.objective);
}

// Plans know the longest of a sample's documents, the most keys and the number of documents, which
// are of different ones where prompts are shared or documents cut into blocks. A GPU's attention by
// matrix products takes memory for each document's own: there the plan is a bound, not the
// measurement to the byte.
inline void expect_planned_peak(int64_t planned, int64_t measured,
                                const data::SampleStore& samples) {
  if (test_device().is_cuda() && (samples.shares_prompts() || samples.is_in_blocks())) {
    EXPECT_GE(planned, measured);
    EXPECT_LE(static_cast<double>(planned), 1.05 * static_cast<double>(measured));
  } else {
    EXPECT_EQ(planned, measured);
  }
}

// Experts that are one tensor have no DoRA, and adapters all of them or none.
inline void fit_to_stacks(recipe::LoraOptions& lora, const std::string& shape) {
  if (!shape.starts_with("gpt-oss")) return;
  lora.use_dora = false;
  if (!lora.target_modules.empty() && lora.target_modules != "all-linear")
    lora.target_modules = R"(.*layers\.1\..*)";
}

inline std::string describe(const recipe::Recipe& r, const std::string& shape) {
  return fmt::format(
      "{}, {}, {}, {}{}{}, micro-batch {}, {}, checkpointing {}{}{}, offload {}{}{}{}{}{}{}{}, {}",
      shape, r.precision, r.optimizer.name,
      !r.lora.enabled   ? "full"
      : r.lora.use_dora ? "dora"
                        : "lora",
      r.lora.enabled && r.lora.dropout > 0 ? " with dropout" : "",
      r.quantize.empty() ? "" : " of " + r.quantize, r.train.micro_batch_size,
      r.data.packing ? "packed" : "padded", r.activation_checkpointing,
      r.activation_offload ? ", activations offloaded" : "",
      r.optimizer_in_backward ? ", optimizer in backward" : "", r.optimizer_offload,
      r.delayed_parameter_update ? ", delayed" : "", r.weight_streaming ? ", weights streamed" : "",
      r.expert_streaming ? ", experts one by one" : "",
      r.weight_folder() ? ", frozen ones on disk" : "",
      r.cast_cache    ? ", casts kept"
      : r.cuda_graphs ? ", recorded"
                      : "",
      r.offload_prefetch == "true" ? ", prefetched" : "", r.train.max_norm ? ", clipped" : "",
      r.objective.name);
}

}  // namespace snug::tests
