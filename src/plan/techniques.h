// The sets of memory techniques that the search for a fit tries: those that change nothing of what
// is learnt, and beyond them only what the recipe's owner has allowed. What the recipe gives is
// part of every set.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "recipe/recipe.h"

namespace snug::plan {

// Where optimizer states are, and updates happen on the host but for the first.
enum class States { OnDevice, OnHost, OnDisk };

struct Technique {
  bool in_backward = false;
  States states = States::OnDevice;
  bool streaming = false;
  bool delay = false;
  std::string checkpointing = "none";
  bool activation_offload = false;

  bool operator==(const Technique&) const = default;
};

// For a recipe on a device where a delayed update gains time, or gains none.
class Techniques {
 public:
  Techniques(const recipe::Recipe& recipe, bool delay_gains);

  // From what takes most memory of the device to what takes least, first without and then with
  // updates in the backward for each place of states and weights.
  std::vector<Technique> all() const;
  // The first costs least time. The others are few, for models that are divided, of which there are
  // many ways: from what costs least time to what needs least memory.
  std::vector<Technique> few() const;
  // Of these the ones that update on the host, with states on disk.
  std::vector<Technique> on_disk(std::vector<Technique> techniques) const;

  // Whether the states' place is left to the search.
  bool may_place_states() const { return !recipe_.given("optimizer_offload"); }
  // `folder`: for states on disk.
  recipe::Recipe applied(recipe::Recipe recipe, const Technique& technique,
                         const std::string& folder) const;

 private:
  // As the recipe has it where that was given; without repetitions and what would be refused.
  std::vector<Technique> as_given(std::vector<Technique> techniques) const;
  bool is_possible(const Technique& technique) const;

  const recipe::Recipe& recipe_;
  bool may_delay_;
};

}  // namespace snug::plan
