// SPDX-License-Identifier: Apache-2.0
#include "recipe/import/programs.h"

namespace snug::recipe {

std::span<const Program> programs() {
  // Those that build on others come before them, since they share keys.
  static const std::vector<Program> kPrograms = {
      torchtune(),     axolotl(),         unsloth(), unsloth_train(),
      llama_factory(), trl_preferences(), trl(),     transformers()};
  return kPrograms;
}

}  // namespace snug::recipe
