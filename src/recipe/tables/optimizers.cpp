// SPDX-License-Identifier: Apache-2.0
#include "recipe/tables/optimizers.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "recipe/options/names.h"

namespace snug::recipe {
namespace {

using Names = std::vector<std::string_view>;

constexpr size_t kNumOptimizers = kWords<OptimizerName>.size();

// In the order of OptimizerName.
const std::array<OptimizerTraits, kNumOptimizers>& table() {
  using enum OptimizerName;
  static const Names kRounding = {"master_weights", "stochastic_rounding"};
  const auto with_rounding = [](Names words) {
    words.insert(words.end(), kRounding.begin(), kRounding.end());
    return words;
  };
  static const Names kAdam8bit = with_rounding({"lr", "weight_decay", "betas", "eps"});
  static const Names kAdam = with_rounding({"lr", "weight_decay", "betas", "eps", "state_dtype"});
  static const std::array<OptimizerTraits, kNumOptimizers> kTable = {{
      {.spellings = {"adamw", "adamw_torch", "adamw_torch_fused", "adamw_hf"},
       .arguments = kAdam,
       .defaults = {.name = AdamW},
       .with_smaller_states = AdamW8bit},
      {.spellings = {"sgd"},
       .arguments = with_rounding({"lr", "weight_decay", "momentum", "nesterov", "state_dtype"}),
       .defaults = {.name = Sgd, .weight_decay = 0},
       .has_states_without_momentum = false},
      {.spellings = {"adamw8bit", "adamw_8bit", "adamw_bnb_8bit", "adamw_torch_8bit"},
       .arguments = kAdam8bit,
       .defaults = {.name = AdamW8bit}},
      // Without decay Adam is AdamW.
      {.spellings = {"adam8bit", "adam_8bit"},
       .arguments = with_rounding({"lr", "betas", "eps"}),
       .defaults = {.name = Adam8bit, .weight_decay = 0},
       .stands_for =
           StandsFor{.name = AdamW8bit,
                     .without_weight_decay =
                         "Adam adds weight decay to the gradient, which adam_8bit does not do "
                         "here; leave it out, or use --optimizer adamw_8bit, which decouples "
                         "weight decay"}},
      // DeepSpeed's AdamW on the host: float32 weights and states there.
      {.spellings = {"deepspeed_cpu", "deepspeedcpuadam"},
       .arguments = kAdam,
       .defaults = {.name = DeepSpeedCpu, .weight_decay = 0, .state_dtype = StateType::Float32},
       .stands_for =
           StandsFor{.name = AdamW, .states_on_host = true, .masters_of_16_bit_weights = true}},
      // bitsandbytes' paged optimizers keep states in memory that moves between device and host as
      // it is needed.
      {.spellings = {"pagedadamw", "pagedadamw32bit", "paged_adamw", "paged_adamw_32bit"},
       .arguments = kAdam,
       .defaults = {.name = PagedAdamW, .state_dtype = StateType::Float32},
       .stands_for = StandsFor{.name = AdamW, .states_on_host = true}},
      {.spellings = {"pagedadamw8bit", "paged_adamw_8bit"},
       .arguments = kAdam8bit,
       .defaults = {.name = PagedAdamW8bit},
       .stands_for = StandsFor{.name = AdamW8bit, .states_on_host = true}},
      {.spellings = {"adafactor"},
       .arguments = with_rounding({"lr", "weight_decay"}),
       .defaults = {.name = Adafactor, .lr = 1e-2, .weight_decay = 0},
       .needs_whole_matrices = true},
      {.spellings = {"lion"},
       .arguments = with_rounding({"lr", "weight_decay", "betas", "state_dtype"}),
       .defaults = {.name = Lion, .lr = 1e-4, .weight_decay = 0, .beta2 = 0.99}},
  }};
  return kTable;
}

const OptimizerTraits* find_optimizer(std::string_view name) {
  const std::string word = lower(last_word(name));
  for (const OptimizerTraits& known : table())
    if (std::ranges::count(known.spellings, word) > 0) return &known;
  return nullptr;
}

}  // namespace

const OptimizerTraits& optimizer_traits(OptimizerName name) {
  return table()[static_cast<size_t>(name)];
}

std::string normalise_optimizer(std::string_view name) {
  const OptimizerTraits* known = find_optimizer(name);
  return std::string(known ? std::string_view(known->defaults.name) : name);
}

OptimizerOptions optimizer_defaults(std::string_view name) {
  const OptimizerTraits* known = find_optimizer(name);
  return known ? known->defaults : OptimizerOptions{};
}

bool optimizer_takes(std::string_view name, std::string_view argument) {
  const OptimizerTraits* known = find_optimizer(name);
  return known && std::ranges::count(known->arguments, argument) > 0;
}

bool needs_whole_matrices(const OptimizerOptions& options) {
  return optimizer_traits(options.name.value()).needs_whole_matrices;
}

bool has_states(const OptimizerOptions& options) {
  return options.momentum != 0 ||
         optimizer_traits(options.name.value()).has_states_without_momentum;
}

void resolve_optimizer(Recipe& recipe) {
  OptimizerOptions& options = recipe.optimizer;
  const std::optional<StandsFor>& meant = optimizer_traits(options.name.value()).stands_for;
  if (!meant) return;
  if (!meant->without_weight_decay.empty() && recipe.given("optimizer.weight_decay"))
    throw UserError("optimizer.weight_decay: {}", meant->without_weight_decay);
  options.name = meant->name;
  if (meant->states_on_host && !recipe.given("optimizer_offload")) recipe.optimizer_offload = "cpu";
  if (meant->masters_of_16_bit_weights && !recipe.given("optimizer.master_weights"))
    options.master_weights = recipe.has_16_bit_weights();
}

}  // namespace snug::recipe
