// Names with several spellings and the one that snug uses: LitGPT writes class paths such as
// litgpt.data.Alpaca2k, the command line short names. Optimizers are in recipe/tables/optimizers.h.
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
std::string upper(std::string_view text);

// "litgpt.data.Alpaca2k", "alpaca2k" -> "Alpaca2k".
std::string normalise_data(std::string_view name);
// The class of data of several sources.
inline constexpr std::string_view kMix = "Mix";
bool is_data_name(std::string_view name);
std::vector<std::string> data_names();
// Whether --data NAME means TextFiles: a .txt or .md file.
bool is_text_file(std::string_view name);
// The defaults of this data class.
double data_val_split_fraction(std::string_view name);
bool data_has_validation(std::string_view name);
std::string data_prompt_style(std::string_view name);
std::optional<int64_t> data_max_samples(std::string_view name);

// LitGPT's logger_name values that send metrics to a service.
std::vector<std::string> online_loggers();

// Lightning's other spellings: "bf16" -> "bf16-mixed", "32" -> "32-true".
std::string normalise_precision(std::string_view name);
// Names from Lightning, LitGPT, DeepSpeed and PyTorch's FSDP, in any case: "FULL_SHARD",
// "deepspeed_stage_3", "zero3" -> "fsdp"; "DDPStrategy" -> "ddp". The ending _offload is kept;
// unknown names are returned unchanged.
std::string normalise_strategy(std::string_view name);
// "True" -> "true", "no" -> "false"; other texts are returned unchanged.
std::string normalise_flag(std::string_view name);

}  // namespace snug::recipe
