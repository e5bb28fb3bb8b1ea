// A training script as a recipe.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "recipe/yaml.h"

namespace snug::recipe {

// Its dictionary of settings (script.h). Models named as on the hub are where snug download puts
// them. What the course's BLIP-2 scripts say outside their dictionary is added: data, lengths, that
// there is no schedule, and which layers have adapters. Throws UserError.
YamlNode read_script_recipe(std::string_view script, const std::string& name);

}  // namespace snug::recipe
