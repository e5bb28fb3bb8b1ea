// SPDX-License-Identifier: Apache-2.0
#include "engine/adapters/adapter_directory.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "base/text.h"
#include "engine/adapters/adapters.h"
#include "files/checkpoint/adapters/litgpt_adapter.h"
#include "files/checkpoint/adapters/peft_adapter.h"
#include "files/checkpoint/adapters/peft_config.h"
#include "files/weights/dtype.h"
#include "models/quantized_folder.h"
#include "models/run_folder.h"

namespace snug::engine {
namespace {

namespace fs = std::filesystem;
using files::show_shape;

constexpr std::string_view kWeight = ".weight";

[[noreturn]] void refuse_directory(const fs::path& directory) {
  if (!fs::exists(directory))
    throw UserError("{} does not exist; give a folder with an adapter", directory.string());
  throw UserError(
      "{} holds no adapter: neither adapter_config.json (PEFT) nor lit_model.pth.lora (LitGPT) is "
      "in it{}",
      directory.string(), models::found_of_a_run(directory));
}

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

fs::path hub_cache() {
  if (const std::string folder = environment("HF_HUB_CACHE"); !folder.empty()) return folder;
  if (const std::string home = environment("HF_HOME"); !home.empty()) return fs::path(home) / "hub";
  return fs::path(environment("HOME")) / ".cache/huggingface/hub";
}

// The cache keeps ORG/NAME under models--ORG--NAME/snapshots/COMMIT, refs/main naming the commit.
fs::path in_hub_cache(const std::string& name) {
  std::string folder = "models--" + name;
  for (size_t at = folder.find('/'); at != std::string::npos; at = folder.find('/', at))
    folder.replace(at, 1, "--");
  const fs::path model = hub_cache() / folder;
  if (!fs::exists(model / "refs/main")) return model;
  std::string commit = read_file(model / "refs/main", 4096);
  commit.erase(commit.find_last_not_of(" \n\r\t") + 1);
  return model / "snapshots" / commit;
}

std::string named_base(const fs::path& directory) {
  if (checkpoint::is_peft_directory(directory))
    return checkpoint::read_peft_config(directory / "adapter_config.json").base_model_name_or_path;
  if (checkpoint::is_litgpt_adapter(directory)) return checkpoint::litgpt_base(directory);
  refuse_directory(directory);
}

checkpoint::LitGptModules litgpt_modules(models::Model& model) {
  checkpoint::LitGptModules modules;
  for (const nn::Linear* linear : linears_of(model)) {
    const models::Placement place = model.placement(models::Layout::LitGpt, linear->weight());
    // LitGPT stores a tied head as a separate tensor.
    const std::string module = linear->is_tied()
                                   ? linear->name()
                                   : place.tensor.substr(0, place.tensor.size() - kWeight.size());
    modules[module].push_back({.module = linear->name(),
                               .row_begin = place.row_begin,
                               .rows = linear->out_features(),
                               .columns = linear->in_features()});
  }
  return modules;
}

void check_fits(const checkpoint::Adapter& adapter, models::Model& base,
                const fs::path& directory) {
  std::map<std::string, const nn::Linear*> layers;
  std::vector<std::string> names;
  for (const nn::Linear* linear : adaptable_linears(base)) {
    layers[linear->name()] = linear;
    names.push_back(linear->name());
  }
  for (const auto& [name, parts] : adapter.modules) {
    const auto known = layers.find(name);
    if (known == layers.end()) {
      const std::string near = nearest_name(name, names);
      if (base.whole() != nullptr && !adapter.config.within.empty())
        throw UserError(
            "{}: it adapts {} too, and of a {} snug reads the language model alone; train an "
            "adapter of its language model, or merge this one with peft (merge_and_unload)",
            directory.string(), name, base.whole()->model_type());
      throw UserError(
          "{}: it adapts {}, which the base does not have{}; the adapter is for another model",
          directory.string(), name, near.empty() ? "" : fmt::format(" (the nearest is {})", near));
    }
    const std::vector<int64_t> found{parts.out_features(), parts.in_features()};
    const std::vector<int64_t>& wanted = known->second->weight().whole_shape();
    if (found != wanted)
      throw UserError(
          "{}: {} is adapted as a weight of shape {}, the base's is {}; the adapter is for another "
          "model",
          directory.string(), name, show_shape(found), show_shape(wanted));
  }
  for (const std::string& name : names)
    if (!adapter.config.target_modules.empty() && !adapter.modules.contains(name) &&
        adapts(adapter.config, name))
      throw UserError(
          "{}: the configuration adapts {} too, but the file has no tensors for it; the file is "
          "incomplete, or the adapter is for a smaller model than the base",
          directory.string(), name);
}

// Reshapes the base weights that the adapter brings (modules_to_save) to the model's shapes.
void fit_base_weights(checkpoint::Adapter& adapter, models::Model& base,
                      const fs::path& directory) {
  std::map<std::string, const nn::Parameter*> known;
  for (const nn::Parameter* parameter : base.parameters()) known[parameter->name] = parameter;
  for (const nn::Linear* linear : linears_of(base))
    known[linear->name() + std::string(kWeight)] = &linear->weight();
  for (auto& [name, value] : adapter.base_weights) {
    const auto found = known.find(name);
    if (found == known.end())
      throw UserError(
          "{}: it contains its own {} of shape {}, which the base does not have; the adapter is "
          "for another model, or its base fuses this weight with others. Merge the adapter "
          "with peft (merge_and_unload) and use the merged model",
          directory.string(), name, show_shape(value.sizes()));
    const std::vector<int64_t>& shape = found->second->whole_shape();
    const models::Placement place = base.placement(models::Layout::HuggingFace, *found->second);
    std::vector<int64_t> wanted = place.shape.empty() ? shape : place.shape;
    if (place.transposed) std::ranges::reverse(wanted);
    if (value.sizes() != at::IntArrayRef(wanted))
      throw UserError(
          "{}: it contains its own {} of shape {}, and the base's has {}; the vocabulary was "
          "changed before training. Merge the adapter with peft (merge_and_unload) and use the "
          "merged model",
          directory.string(), name, show_shape(value.sizes()), show_shape(wanted));
    value = place.transposed ? value.t().contiguous() : value.view(shape);
  }
}

}  // namespace

bool is_adapter_directory(const fs::path& directory) {
  const bool model =
      fs::exists(directory / "config.json") || fs::exists(directory / "lit_model.pth");
  return !model &&
         (checkpoint::is_peft_directory(directory) || checkpoint::is_litgpt_adapter(directory));
}

fs::path find_base(const fs::path& directory) {
  const std::string name = named_base(directory);
  if (name.empty())
    throw UserError("{} does not say which base it is for; give the base too", directory.string());
  std::vector<std::string> places{name};
  if (fs::path(name).is_relative())
    places.insert(places.end(),
                  {(fs::path("checkpoints") / name).string(), in_hub_cache(name).string()});
  for (const std::string& place : places)
    if (fs::exists(place)) return place;
  throw UserError(
      "{} is for the base {}, which is not on this machine (looked for {}); give the base's folder "
      "too, or fetch it with: snug download ORG/NAME",
      directory.string(), name, fmt::join(places, ", "));
}

std::string quantizing_options(const fs::path& directory) {
  const fs::path record = fs::absolute(directory).lexically_normal() / "../run.json";
  std::error_code ignored;
  if (!fs::exists(record, ignored)) return "";
  const auto run = nlohmann::json::parse(read_file(record, size_t{1} << 28), nullptr,
                                         /*allow_exceptions=*/false);
  const auto recipe = run.is_object() ? run.value("recipe", nlohmann::json()) : nlohmann::json();
  if (!recipe.is_object() || !recipe.value("quantize", nlohmann::json()).is_string()) return "";
  const std::string format = recipe["quantize"];
  if (format.empty() || format == "none") return "";
  // A base that is stored so stands for the same numbers either way.
  const auto base = recipe.value("checkpoint_dir", nlohmann::json());
  if (base.is_string() && models::stored_quantization(base.get<std::string>()) == format) return "";
  const auto precision = recipe.value("precision", nlohmann::json());
  return fmt::format("--quantize {} --precision {}", format,
                     precision.is_string() ? precision.get<std::string>() : "bf16-true");
}

checkpoint::Adapter read_adapter(const fs::path& directory, models::Model& base) {
  checkpoint::Adapter adapter;
  if (checkpoint::is_peft_directory(directory))
    adapter = checkpoint::read_peft_adapter(directory, expert_stacks(base));
  else if (checkpoint::is_litgpt_adapter(directory))
    adapter = checkpoint::read_litgpt_adapter(directory, litgpt_modules(base));
  else
    refuse_directory(directory);
  check_fits(adapter, base, directory);
  fit_base_weights(adapter, base, directory);
  return adapter;
}

}  // namespace snug::engine
