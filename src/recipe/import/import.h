// Recipes of other programs (axolotl, LLaMA-Factory, TRL and transformers, torchtune, Unsloth) as
// settings of snug. Which program a recipe belongs to is recognised from its keys.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "recipe/import/deepspeed.h"
#include "recipe/settings.h"
#include "recipe/yaml.h"

namespace snug::recipe {

inline constexpr size_t kMaxRecipeBytes = size_t{1} << 20;

struct ImportRemark {
  std::string where;  // "recipe.yaml:12: wandb_project"
  std::string why;
};

struct ImportRefusal {
  ImportRemark remark;
  std::string ours;  // the option of snug that would settle it on the command line; empty: none

  std::string text() const { return remark.where + ": " + remark.why; }
};

struct Imported {
  std::string program;
  // Nothing to snug, but to a plan beside it: Liger's kernels, DeepSpeed's settings.
  bool has_liger = false;
  std::optional<DeepSpeed> deepspeed;
  std::vector<Setting> settings;
  std::vector<ImportRemark> differing;  // of keys that are carried over, but mean something else
  std::vector<ImportRemark> idle;       // of keys without an effect here
  std::vector<ImportRefusal> refused;
};

// std::nullopt: a recipe of snug or LitGPT. `file` is in front of every place.
std::optional<Imported> import_recipe(YamlNode tree, const std::string& file);

// One line on what became of the keys.
std::string import_summary(const Imported& imported, const std::string& file);

// The recipe of snug as YAML. Each line has a comment on what it comes from; what differs, what has
// no effect and what is refused is listed below. Throws UserError for a value that the option does
// not take.
std::string print_imported(const Imported& imported, const std::string& file);

// Imports a file, which must be another program's.
Imported import_file(const std::string& file);
// Throws UserError with what is refused, if there is anything.
void check_imported(const Imported& imported);

}  // namespace snug::recipe
