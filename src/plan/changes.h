// Changes to a recipe that save memory, and combinations of them, which suggest() tries.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "recipe/recipe.h"
#include "recipe/techniques/technique.h"

namespace snug::plan {

// One change to a recipe: turns a technique on, or off, or calls `change`.
struct Change {
  const recipe::Technique* on = nullptr;
  const recipe::Technique* off = nullptr;
  std::string_view options = {};  // empty where techniques are turned on or off
  std::string_view cost_words = {};
  bool (*change)(recipe::Recipe&) = nullptr;
  recipe::TimeCost cost = recipe::TimeCost::Nothing;
  bool same_training = true;
  bool names_optimizer = false;  // replaces another change that does

  // Returns false if it changes nothing.
  bool apply(recipe::Recipe& r) const {
    return on != nullptr ? turn_on(*on, r) : off != nullptr ? turn_off(*off, r) : change(r);
  }
  bool moves_to_host() const { return cost >= recipe::TimeCost::UpdatesOnHost; }
};

// First those that leave the training the same, fastest first, then the others, least change first.
const std::vector<Change>& changes();

// A combination of changes, in the order of changes().
struct Choice {
  std::vector<const Change*> changes;
  int64_t micro_batch_size = 0;
  int64_t max_seq_length = 0;  // samples are cut to it; 0: they are not

  // NOLINTNEXTLINE(modernize-use-nullptr): clang-tidy sees a comparison with 0 in it
  auto operator<=>(const Choice&) const = default;
};

struct Changed {
  recipe::Recipe recipe;
  std::vector<std::string> options;
};

// The recipe with these changes, and the options that the user would type for it.
Changed changed(const recipe::Recipe& recipe, const Choice& choice);

// The cost of a choice in plain words.
std::string cost_of(const Choice& choice, const recipe::Recipe& recipe);

// How much a choice changes the training, by the order of changes(); 0: not at all. Shorter samples
// count as less than adapters.
std::ptrdiff_t degree(const Choice& choice);

// The effort of a choice, for ranking, as a share of the time: each more option adds some, and what
// moves to the host takes memory there and depends on the link.
double effort(const Choice& choice, size_t num_options, double time_factor);

}  // namespace snug::plan
