// Names that come in many spellings, made one: LitGPT writes a class path (litgpt.data.Alpaca2k),
// the command line a short word. Optimizers' names are in recipe/tables/optimizers.h.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "recipe/recipe.h"

namespace snug::recipe {

// "a.b.C" -> "C".
std::string_view last_word(std::string_view path);
std::string lower(std::string_view text);

// "litgpt.data.Alpaca2k", "alpaca2k" -> "Alpaca2k".
std::string normalise_data(std::string_view name);
std::vector<std::string> data_names();
// What this data set's class takes when nothing is said.
double data_val_split_fraction(std::string_view name);
std::string data_prompt_style(std::string_view name);
std::optional<int64_t> data_max_samples(std::string_view name);

// What LitGPT's logger_name may also be: services that metrics are sent to.
std::vector<std::string> online_loggers();

// "bf16" -> "bf16-mixed", "32" -> "32-true", "fp16-true" -> "16-true": Lightning's other spellings.
std::string normalise_precision(std::string_view name);
// "FULL_SHARD", "deepspeed_stage_3", "zero3" -> "fsdp"; "DDPStrategy" -> "ddp": what Lightning,
// LitGPT, DeepSpeed and PyTorch's FSDP call the same, in any case. An ending _offload stays. An
// unknown name comes back as it is.
std::string normalise_strategy(std::string_view name);
// "True" -> "true", "no" -> "false"; other words and paths stay.
std::string normalise_flag(std::string_view name);

}  // namespace snug::recipe
