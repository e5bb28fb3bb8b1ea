// SPDX-License-Identifier: Apache-2.0
#include "recipe/import/script_recipe.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/files.h"
#include "base/program.h"
#include "recipe/hub_models.h"
#include "recipe/import/script.h"
#include "recipe/numbers.h"

namespace snug::recipe {
namespace {

constexpr size_t kMostBytes = size_t{1} << 20;

YamlNode* entry_of(YamlNode& map, std::string_view key) {
  const auto found =
      std::ranges::find_if(map.entries, [&](const auto& entry) { return entry.first == key; });
  return found == map.entries.end() ? nullptr : &found->second;
}

bool is_on(YamlNode& map, std::string_view key) {
  const YamlNode* entry = entry_of(map, key);
  return entry != nullptr && parse_bool(entry->text).value_or(false);
}

void set(YamlNode& map, const std::string& key, const std::string& word) {
  YamlNode value{.kind = YamlNode::Kind::Scalar, .line = map.line, .text = word};
  if (YamlNode* entry = entry_of(map, key))
    *entry = std::move(value);
  else
    map.entries.emplace_back(key, std::move(value));
}

// A recipe made of the first of the scripts has what is the same in all.
void add_constants_of_blip2(YamlNode& script) {
  const bool quantizes = is_on(script, "use_qlora"),
             adapts = quantizes || is_on(script, "use_lora");
  const std::filesystem::path made_of_first = shipped_file(
      adapts ? "recipes/blip2/bp01-xxl-lora.yaml" : "recipes/blip2/bs01-baseline.yaml");
  YamlNode recipe = read_yaml(read_file(made_of_first, kMostBytes), made_of_first.string());
  for (const char* key : {"data", "train", "eval", "lora_target_modules"})
    if (YamlNode* value = entry_of(recipe, key); value && !entry_of(script, key))
      script.entries.emplace_back(key, std::move(*value));
  if (!adapts) set(script, "full", "true");
  if (quantizes) set(script, "act_ckpt", "true");  // as peft's preparation turns it on
}

}  // namespace

YamlNode read_script_recipe(std::string_view script, const std::string& name) {
  YamlNode tree = read_script(script, name);
  YamlNode* model = entry_of(tree, "model_name");
  if (model == nullptr) return tree;
  const bool is_blip2 = model->text.find("blip2") != std::string::npos;
  model->text = imported_model_folder(model->text);
  if (is_blip2) add_constants_of_blip2(tree);
  return tree;
}

}  // namespace snug::recipe
