// The settings of memory techniques that the search for a fit tries: those that change nothing of
// what is learnt, and beyond them only what the recipe's owner has allowed. What the recipe gives
// is part of every setting.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "recipe/tables/techniques.h"

namespace snug::plan {

// A value for the option of each technique, in the order of recipe::techniques().
struct Setting {
  std::vector<std::string> values;

  const std::string& operator[](recipe::Technique technique) const {
    return values[static_cast<size_t>(technique)];
  }
  std::string& operator[](recipe::Technique technique) {
    return values[static_cast<size_t>(technique)];
  }
  bool is_on(recipe::Technique technique) const {
    return (*this)[technique] != recipe::traits_of(technique).values.front();
  }
  bool operator==(const Setting&) const = default;
};

// For a recipe on a device where something can run beside the computation, or not.
class Techniques {
 public:
  Techniques(const recipe::Recipe& recipe, bool on_gpu) : recipe_(recipe), on_gpu_(on_gpu) {}

  // From what takes most memory of the device to what takes least, for each place of weights and
  // states.
  std::vector<Setting> all() const;
  // The first costs least time. The others are few, for models that are divided, of which there are
  // many ways: from what costs least time to what needs least memory.
  std::vector<Setting> few() const;
  // Of these the ones that update on the host, with states in a file in `folder`.
  static std::vector<Setting> on_disk(std::vector<Setting> settings, const std::string& folder);

  // Whether the states' place is left to the search.
  bool may_place_states() const {
    return is_free(recipe::traits_of(recipe::Technique::OptimizerOffload));
  }
  static recipe::Recipe applied(recipe::Recipe recipe, const Setting& setting);

 private:
  // Whether the recipe leaves a technique to the search.
  bool is_free(const recipe::TechniqueTraits& traits) const;
  // As the recipe has it where that was given; without repetitions and what would be refused.
  std::vector<Setting> as_given(std::vector<Setting> settings) const;

  const recipe::Recipe& recipe_;
  bool on_gpu_;
};

// What has to be typed to get the techniques of `to` instead of those of `from`:
// "--activation_checkpointing all --optimizer_offload cpu".
std::string technique_options(const recipe::Recipe& from, const recipe::Recipe& to);

}  // namespace snug::plan
