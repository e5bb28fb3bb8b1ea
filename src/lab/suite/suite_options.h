// Layers of options: what a suite says for all rows, what a row changes of another one, what holds
// only when planned. An option has several names (optim, optimizer, optimizer.class_path), and an
// upper layer takes the place of a lower one under whichever name; choosing a class (optimizer)
// drops what lower layers said of another class's arguments, as on the command line.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lab/suite/suite.h"
#include "lab/suite/suite_fields.h"

namespace snug::lab {

// The key of a recipe that a row starts from: not an option of the table, but --config.
constexpr std::string_view kConfig = "config";

struct OptionChange {
  std::string key;                   // as written, dotted
  std::optional<std::string> value;  // empty: null, which takes it back
};
using OptionLayer = std::vector<OptionChange>;

enum class TakingBack { Allowed, Refused };

// Reads a `set` mapping; keys and values are checked against the options of snug finetune. The path
// of `config` is relative to `folder`.
OptionLayer read_options(const recipe::YamlNode& node, const std::filesystem::path& folder,
                         TakingBack taking_back, Faults& faults);

void lay_over(Settings& options, const OptionLayer& layer);
void lay_over(Settings& options, const Settings& layer);

// "optim" -> "optimizer.class_path"; an unknown name comes back with its dots and underscores
// made right.
std::string option_key(std::string_view name);
// The value of an option under any of its names; nullptr where it is not set.
const std::string* find_option(const Settings& options, std::string_view name);

}  // namespace snug::lab
