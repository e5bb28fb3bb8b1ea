// What the search for a fit tries: settings of memory techniques, and layouts of the model over
// several devices. It tries only what leaves the training the same or what the recipe allows;
// options given in the recipe are part of every setting.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/model.h"
#include "recipe/recipe.h"
#include "recipe/techniques/technique.h"

namespace snug::plan {

// A value for the option of each technique, in the order of recipe::techniques().
struct Setting {
  std::vector<std::string> values;

  // By the technique's key.
  const std::string& operator[](std::string_view key) const {
    return values[recipe::place_of(key)];
  }
  std::string& operator[](std::string_view key) { return values[recipe::place_of(key)]; }
  bool is_on(std::string_view key) const {
    return (*this)[key] != recipe::technique_of(key).values.front();
  }
  // Whether one of its techniques saves memory for some sizes of micro-batches only.
  bool saves_by_size() const;
  bool operator==(const Setting&) const = default;
};

class Techniques {
 public:
  Techniques(const recipe::Recipe& recipe, bool on_gpu, bool has_experts)
      : recipe_(recipe), on_gpu_(on_gpu), has_experts_(has_experts) {}

  // For each place of weights and states, from most to least device memory.
  std::vector<Setting> all() const;
  // A few settings, from the fastest to the smallest, for layouts that divide the model, of which
  // there are many.
  std::vector<Setting> few() const;
  // Those of `settings` with a technique that takes a folder, with a file in `folder`.
  static std::vector<Setting> on_disk(std::vector<Setting> settings, const std::string& folder);

  // Whether the recipe leaves a technique that takes a folder to the search.
  bool may_use_disk() const;
  static recipe::Recipe applied(recipe::Recipe recipe, const Setting& setting);

 private:
  // Whether the recipe leaves a technique to the search.
  bool is_free(const recipe::Technique& technique) const;
  // With the options given in the recipe; without duplicates and settings that would be refused.
  std::vector<Setting> as_given(std::vector<Setting> settings) const;

  const recipe::Recipe& recipe_;
  bool on_gpu_, has_experts_;
};

// The options that turn the techniques of `from` into those of `to`, each with its value.
std::string technique_options(const recipe::Recipe& from, const recipe::Recipe& to);

// How a recipe's devices share the model: strategy and mesh.
struct Layout {
  recipe::Word<recipe::Strategy> strategy;  // these three as in a recipe
  std::string mesh;                         // empty: the strategy's default
  int64_t interleave = 1;

  // Uses tensor or pipeline parallelism.
  bool divides_the_model() const;
};

// All layouts that the number of devices allows and that would not be refused; a single one if the
// recipe gives a strategy or a mesh. Tensor axes stay within a machine, where links are fast, and
// divide heads and features evenly; a pipeline has at most as many stages as units.
std::vector<Layout> layouts(const models::Model& model, const recipe::Recipe& recipe);

// The recipe with this layout.
recipe::Recipe laid_out(recipe::Recipe recipe, const Layout& layout);

}  // namespace snug::plan
