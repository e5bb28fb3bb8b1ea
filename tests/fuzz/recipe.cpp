// SPDX-License-Identifier: Apache-2.0
#include "fuzz/fuzz.h"
#include "recipe/check.h"
#include "recipe/parse.h"
#include "recipe/print.h"

// Changed recipes, of snug's own and of other programs: what is still read is checked and written
// again.
int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  snug::fuzz::with_file(data, size, "recipe.yaml", [](const std::filesystem::path& path) {
    const std::string words[] = {"finetune", "--config", path.string()};
    const snug::recipe::ParsedCommand parsed = snug::recipe::parse_command_line(words);
    snug::recipe::print_recipe_yaml(parsed.recipe);
    snug::recipe::recipe_faults(parsed.command, parsed.recipe);
  });
  return 0;
}

bool snug::fuzz::change_structure(Bytes& bytes, Random& random) {
  return change_words(bytes, random);
}
