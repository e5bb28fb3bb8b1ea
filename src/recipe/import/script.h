// The settings of a training script in Python: the dictionary that it is edited in, cfg = {…}, read
// as data. Nothing of the script is executed.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "recipe/yaml.h"

namespace snug::recipe {

// Whether a text gives the name cfg or config to a dictionary, in a line of its own.
bool has_settings(std::string_view script);

// That dictionary, with the script's lines. Throws UserError, beginning with `name`, if there is
// none, if a value has to be computed, or if the script changes it afterwards.
YamlNode read_script(std::string_view script, const std::string& name);

}  // namespace snug::recipe
