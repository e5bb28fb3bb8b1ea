// LitGPT's named data sets: their place on the hub and their columns' names.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <vector>

#include "data/sampler.h"

namespace snug::data {

struct NamedSet {
  std::string name;
  std::string repo_id;
  std::vector<std::string> train_patterns;
  std::vector<std::string> validation_patterns = {};  // empty: hold out val_split_fraction of train
  double val_split_fraction = 0;                      // LitGPT's default
  SplitRounding rounding = SplitRounding::Down;
  Columns columns = {};
  std::string prompt_style = "alpaca";
};

std::span<const NamedSet> named_sets();

}  // namespace snug::data
