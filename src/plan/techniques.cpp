// SPDX-License-Identifier: Apache-2.0
#include "plan/techniques.h"

#include <algorithm>

#include "engine/strategy.h"

namespace snug::plan {
namespace {

States states_of(const recipe::Recipe& recipe) {
  if (recipe.offload_folder()) return States::OnDisk;
  return recipe.optimizer_offload == "none" ? States::OnDevice : States::OnHost;
}

}  // namespace

Techniques::Techniques(const recipe::Recipe& recipe, bool delay_gains)
    : recipe_(recipe),
      may_delay_(recipe.fit_delay && delay_gains && engine::named_ranks(recipe) == 1 &&
                 !recipe.given("delayed_parameter_update")) {}

std::vector<Technique> Techniques::all() const {
  // Where states and weights live and when they are updated.
  const Technique placements[] = {
      {},
      {.in_backward = true},
      {.states = States::OnHost},
      {.states = States::OnHost, .delay = true},
      {.in_backward = true, .states = States::OnHost},
      {.states = States::OnHost, .streaming = true},
      {.in_backward = true, .states = States::OnHost, .streaming = true}};
  std::vector<Technique> all;
  for (Technique technique : placements)
    for (const char* checkpointing : {"none", "selective", "every:2", "all"})
      for (const bool activation_offload : {false, true}) {
        technique.checkpointing = checkpointing;
        technique.activation_offload = activation_offload;
        all.push_back(technique);
      }
  return as_given(std::move(all));
}

std::vector<Technique> Techniques::few() const {
  std::vector<Technique> few{{}};
  for (const char* checkpointing : {"selective", "every:2", "all"})
    few.push_back({.checkpointing = checkpointing});
  few.push_back({.in_backward = true, .checkpointing = "all"});
  few.push_back({.checkpointing = "all", .activation_offload = true});
  for (const char* checkpointing : {"none", "selective", "all"})
    for (const bool delay : {true, false})
      few.push_back({.states = States::OnHost, .delay = delay, .checkpointing = checkpointing});
  few.push_back({.states = States::OnHost, .streaming = true, .checkpointing = "all"});
  few.push_back({.in_backward = true,
                 .states = States::OnHost,
                 .streaming = true,
                 .checkpointing = "all",
                 .activation_offload = true});
  return as_given(std::move(few));
}

std::vector<Technique> Techniques::on_disk(std::vector<Technique> techniques) const {
  std::erase_if(techniques, [](const Technique& t) { return t.states == States::OnDevice; });
  for (Technique& technique : techniques) technique.states = States::OnDisk;
  return techniques;
}

std::vector<Technique> Techniques::as_given(std::vector<Technique> techniques) const {
  std::vector<Technique> different;
  for (Technique& t : techniques) {
    if (recipe_.given("activation_checkpointing"))
      t.checkpointing = recipe_.activation_checkpointing;
    if (recipe_.given("activation_offload")) t.activation_offload = recipe_.activation_offload;
    if (recipe_.given("optimizer_in_backward") && !recipe_.optimizer_in_backward_is_auto)
      t.in_backward = recipe_.optimizer_in_backward;
    if (recipe_.given("optimizer_offload")) t.states = states_of(recipe_);
    if (recipe_.given("weight_streaming")) t.streaming = recipe_.weight_streaming;
    if (!may_delay_) t.delay = recipe_.delayed_parameter_update;
    const bool is_new = std::ranges::find(different, t) == different.end();
    if (is_new && is_possible(t)) different.push_back(std::move(t));
  }
  return different;
}

bool Techniques::is_possible(const Technique& t) const {
  const bool on_host = t.states != States::OnDevice;
  if (t.streaming && !on_host) return false;
  if (t.delay && (!on_host || t.in_backward || t.streaming)) return false;
  return !t.in_backward || (recipe_.precision != "16-mixed" && recipe_.train.on_oom != "split");
}

recipe::Recipe Techniques::applied(recipe::Recipe recipe, const Technique& technique,
                                   const std::string& folder) const {
  recipe.activation_checkpointing = technique.checkpointing;
  recipe.activation_offload = technique.activation_offload;
  recipe.optimizer_in_backward = technique.in_backward;
  recipe.optimizer_in_backward_is_auto = false;
  recipe.weight_streaming = technique.streaming;
  recipe.delayed_parameter_update = technique.delay;
  if (may_place_states())
    recipe.optimizer_offload = technique.states == States::OnDevice ? "none"
                               : technique.states == States::OnHost ? "cpu"
                                                                    : "disk:" + folder;
  recipe.train.accumulate_grad_batches.reset();  // the global batch stays
  return recipe;
}

}  // namespace snug::plan
