// SPDX-License-Identifier: Apache-2.0
#include "engine/adapters/started_adapter.h"

#include <ATen/ops/cat.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "core/nn/adapter.h"
#include "core/nn/head.h"
#include "data/prompts.h"
#include "engine/adapters/adapter_directory.h"
#include "engine/adapters/adapters.h"
#include "engine/adapters/merge.h"
#include "files/checkpoint/adapters/peft_adapter.h"
#include "files/checkpoint/adapters/peft_config.h"

namespace snug::engine {
namespace {

namespace fs = std::filesystem;

const std::string kScoreWeight = std::string(nn::kScoreLayer) + ".weight";

// This rank's part of a whole value.
at::Tensor own_part(const nn::Parameter& parameter, const at::Tensor& whole) {
  if (!parameter.slice) return whole;
  const at::Tensor flat = whole.contiguous().view(-1);
  std::vector<at::Tensor> parts;
  for (const nn::ElementRange& range : parameter.ranges())
    parts.push_back(flat.narrow(0, range.begin, range.count));
  return at::cat(parts).view(parameter.shape);
}

void write_part(const nn::Parameter& parameter, const at::Tensor& whole) {
  parameter.write(own_part(parameter, whole));
}

// An option that was given must say what the file says.
template <class T>
void take(const recipe::Recipe& recipe, const char* key, T& own, const T& value) {
  if (recipe.given(key) && own != value)
    throw UserError(
        "{} = {}: the adapter in {} was trained with {}, and trains on with it; leave {} out", key,
        own, recipe.lora.adapter, value, key);
  own = value;
}

bool names_layers(const recipe::Recipe& recipe) {
  constexpr const char* kKeys[] = {"lora_query",         "lora_key", "lora_value",
                                   "lora_projection",    "lora_mlp", "lora_head",
                                   "lora_target_modules"};
  return std::ranges::any_of(kKeys, [&](const char* key) { return recipe.given(key); });
}

// The layers that were given must be those of the file.
void check_layers(const recipe::LoraOptions& options, models::Model& model) {
  recipe::LoraOptions anew = options;
  anew.adapter.clear();
  const checkpoint::AdapterConfig own = adapter_config(model, options),
                                  given = adapter_config(model, anew);
  for (const nn::Linear* linear : adaptable_linears(model)) {
    const bool is_adapted = checkpoint::adapts(own, linear->name());
    if (is_adapted == checkpoint::adapts(given, linear->name())) continue;
    throw UserError(
        "the adapter in {} {} {}, and trains on as it is; leave lora_query to lora_head and "
        "lora_target_modules out",
        options.adapter, is_adapted ? "adapts" : "does not adapt", linear->name());
  }
}

}  // namespace

checkpoint::AdapterConfig started_config(const recipe::LoraOptions& options) {
  const fs::path folder = options.adapter;
  if (!checkpoint::is_peft_directory(folder))
    throw UserError(
        "adapter = {}: {}; give a folder with adapter_config.json, as snug finetune and peft write "
        "it",
        folder.string(),
        fs::exists(folder) ? "no adapter of PEFT's form is in it" : "there is no such folder");
  checkpoint::AdapterConfig config = checkpoint::read_peft_config(folder / "adapter_config.json");
  if (!config.target_parameters.empty())
    throw UserError(
        "adapter = {}: it adapts experts that are one tensor, and such adapters cannot train on; "
        "merge it (snug merge), and train another one on the merged model",
        folder.string());
  config.lora_dropout = options.dropout;
  config.modules_to_save.clear();  // those that train are added when it is written
  config.init_lora_weights = "true";
  return config;
}

void resolve_adapter(recipe::Recipe& recipe) {
  if (!recipe.model.config.empty() && !recipe.lora.adapter.empty())
    throw UserError(
        "adapter = {} with model.config: random weights have no adapter; name its model, or leave "
        "model.config out",
        recipe.lora.adapter);
  const bool is_model = recipe.model.config.empty() && !recipe.checkpoint_dir.empty() &&
                        is_adapter_directory(recipe.checkpoint_dir);
  if (is_model && !recipe.lora.enabled)
    throw UserError(
        "{} is an adapter, which snug finetune trains on; all weights train in a model of its own: "
        "snug merge {}",
        recipe.checkpoint_dir, recipe.checkpoint_dir);
  if (is_model && !recipe.lora.adapter.empty())
    throw UserError("{} is an adapter, and adapter = {} names another; give one of them",
                    recipe.checkpoint_dir, recipe.lora.adapter);
  if (is_model) {
    recipe.lora.adapter = recipe.checkpoint_dir;
    recipe.checkpoint_dir = find_base(recipe.lora.adapter).string();
  }
  recipe::LoraOptions& lora = recipe.lora;
  if (lora.adapter.empty()) return;
  const checkpoint::AdapterConfig config = started_config(lora);
  if (recipe.checkpoint_dir.empty()) recipe.checkpoint_dir = find_base(lora.adapter).string();
  // So that the record says what trains.
  if (!names_layers(recipe))
    lora.target_modules = config.target_modules.pattern.empty()
                              ? fmt::format("{}", fmt::join(config.target_modules.names, ","))
                              : config.target_modules.pattern;
  take(recipe, "lora_r", lora.r, config.r);
  take(recipe, "lora_alpha", lora.alpha, static_cast<int64_t>(std::llround(config.lora_alpha)));
  take(recipe, "lora_use_dora", lora.use_dora, config.use_dora);
  take(recipe, "lora_use_rslora", lora.use_rslora, config.use_rslora);
  // As it was trained, so that what it learnt is asked for in the same words.
  if (const auto record = data::read_prompt_record(lora.adapter);
      record && recipe.data.prompt_style == "auto")
    recipe.data.prompt_style = record->style;
  if (!(lora.init_weights == recipe::AdapterInit::Default))
    throw UserError(
        "lora_init_weights = {}: the adapter in {} begins with the weights that it has; leave it "
        "out",
        lora.init_weights, lora.adapter);
}

void check_started(const recipe::Recipe& recipe, const models::Checkpoint& base) {
  const recipe::LoraOptions& options = recipe.lora;
  if (names_layers(recipe)) check_layers(options, *base.model);
  if (const std::string quantized = quantizing_options(options.adapter);
      !quantized.empty() && recipe.quantize.empty())
    warn(
        "{} was trained beside quantized weights, and trains on beside the original ones of the "
        "base; {} gives what it was trained with",
        options.adapter, quantized);
  const checkpoint::Adapter adapter = read_adapter(options.adapter, *base.model);
  for (const auto& [name, _] : changed_base_weights(base, adapter))
    if (name != kScoreWeight)
      throw UserError(
          "adapter = {}: its {} differs from that of {}, and would not train; snug merge {} makes "
          "one model of both, on which another adapter trains",
          options.adapter, name, base.path.string(), options.adapter);
}

checkpoint::Adapter read_started(const recipe::LoraOptions& options, models::Model& base) {
  checkpoint::Adapter adapter = read_adapter(options.adapter, base);
  std::erase_if(adapter.base_weights,
                [](const auto& weight) { return weight.first != kScoreWeight; });
  return adapter;
}

void write_started(const checkpoint::Adapter& values, nn::Unit& unit) {
  for (const nn::Linear* linear : unit.linears()) {
    const nn::Adapter* adapter = linear->adapter();
    const auto found = values.modules.find(linear->name());
    if (adapter == nullptr || linear->weight().is_elsewhere()) continue;
    SNUG_CHECK(found != values.modules.end(), "no values for the adapter of {}", linear->name());
    write_part(adapter->a, found->second.a);
    write_part(adapter->b, found->second.b);
    if (adapter->options.magnitude) write_part(adapter->magnitude, found->second.magnitude);
  }
  for (const nn::Parameter* parameter : unit.parameters())
    if (const auto found = values.base_weights.find(parameter->name);
        found != values.base_weights.end())
      write_part(*parameter, found->second);
}

}  // namespace snug::engine
