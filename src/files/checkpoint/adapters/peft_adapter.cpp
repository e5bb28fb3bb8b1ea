// SPDX-License-Identifier: Apache-2.0
#include "files/checkpoint/adapters/peft_adapter.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string_view>

#include "base/error.h"
#include "base/files.h"
#include "files/checkpoint/adapters/adapter.h"
#include "files/checkpoint/adapters/expert_stacks.h"
#include "files/checkpoint/adapters/peft_config.h"
#include "files/checkpoint/tensor_bytes.h"
#include "files/weights/byte_reader.h"
#include "files/weights/pth/pth.h"
#include "files/weights/safetensors/safetensors.h"

namespace snug::checkpoint {
namespace {

namespace fs = std::filesystem;
using files::printable;

constexpr const char* kConfigName = "adapter_config.json";
constexpr const char* kWeightsName = "adapter_model.safetensors";
constexpr const char* kOldWeightsName = "adapter_model.bin";
constexpr std::string_view kPrefix = "base_model.model.";
const std::map<std::string, std::string> kMetadata = {{"format", "pt"}};

enum class Kind { A, B, Magnitude, BaseWeight };

// A parsed tensor name.
struct Key {
  Kind kind;
  std::string module;   // for a base weight the parameter's name
  std::string adapter;  // its name, if the file has one
};

struct Suffix {
  std::string_view word;
  Kind kind;
};
constexpr Suffix kSuffixes[] = {
    {".lora_A", Kind::A}, {".lora_B", Kind::B}, {".lora_magnitude_vector", Kind::Magnitude}};

// Tensors of unsupported adapters, with the reason.
struct Foreign {
  std::string_view word;
  std::string_view why;
};
constexpr Foreign kForeign[] = {
    {".lora_embedding_", "adapters of an embedding are not supported"},
    {".modules_to_save.", "this older form of fully trained layers is not supported"},
    {".token_adapter.", "trained rows of the embedding are not supported"},
    {".lora_B.bias", "adapters with biases are not supported"},
};

std::unique_ptr<files::TensorSource> open_weights(const fs::path& directory) {
  if (fs::exists(directory / kWeightsName))
    return files::open_safetensors(directory / kWeightsName);
  if (fs::exists(directory / kOldWeightsName)) return files::open_pth(directory / kOldWeightsName);
  throw UserError("{}: there is neither {} nor {} beside {}; fetch or save the adapter again",
                  directory.string(), kWeightsName, kOldWeightsName, kConfigName);
}

// The adapter's name after ".lora_A": ".weight", "" (an old magnitude), ".NAME.weight" or ".NAME".
std::optional<std::string> adapter_name(std::string_view rest) {
  constexpr std::string_view kWeight = ".weight";
  if (rest.ends_with(kWeight)) rest.remove_suffix(kWeight.size());
  if (rest.empty()) return "";
  if (rest.front() != '.' || rest.size() == 1) return {};
  return std::string(rest.substr(1));
}

// If the head or embedding is adapted, PEFT also stores the base's.
std::optional<Key> base_weight(std::string_view name) {
  for (const std::string_view module : {"lm_head", "model.embed_tokens"})
    for (const std::string_view end : {".weight", ".base_layer.weight"})
      if (name.starts_with(module) && name.substr(module.size()) == end)
        return Key{Kind::BaseWeight, std::string(module) + ".weight", ""};
  return {};
}

// The names of an adapter's language model if it is within a model of several parts: those that
// transformers has since 4.52, and what older releases had.
std::string language_prefix(const files::TensorSource& source) {
  for (const char* prefix : {"model.language_model.", "language_model.model."})
    for (const files::TensorInfo& info : source.tensors())
      if (info.name.starts_with(std::string(kPrefix) + prefix)) return prefix;
  return "";
}

Key parse_key(const std::string& full, const AdapterConfig& config, const std::string& where) {
  std::string_view name = full;
  if (name.starts_with(kPrefix)) {
    name.remove_prefix(kPrefix.size());
    for (const Foreign& foreign : kForeign)
      if (name.find(foreign.word) != std::string_view::npos)
        throw UserError(
            "{}: tensor {}: {}; merge the adapter with peft (merge_and_unload) and use "
            "the merged model",
            where, printable(full), foreign.why);
    for (const Suffix& suffix : kSuffixes) {
      const size_t at = name.rfind(suffix.word);
      if (at == std::string_view::npos || at == 0) continue;
      const auto adapter = adapter_name(name.substr(at + suffix.word.size()));
      if (adapter)
        return {suffix.kind, own_name(config, std::string(name.substr(0, at))), *adapter};
    }
    if (const auto key = base_weight(own_name(config, std::string(name)))) return *key;
    // Whether the base has such a weight is checked by the caller.
    if (!config.modules_to_save.empty())
      return {Kind::BaseWeight, own_name(config, std::string(name)), ""};
  }
  throw UserError(
      "{}: tensor {} is unknown; names must look like "
      "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight",
      where, printable(full));
}

// Of a vocabulary that was changed, PEFT stores embedding and head as they are, and the two parts
// of the wrapper that they are in.
bool is_of_wrapper(const std::string& name, const files::TensorSource& source) {
  for (const std::string part : {".modules_to_save", ".original_module"})
    if (const size_t at = name.find(part + "."); at != std::string::npos)
      return source.find(std::string(name).erase(at, part.size())) != nullptr;
  return false;
}

void place(at::Tensor& slot, const files::TensorInfo& info, const files::TensorSource& source) {
  if (slot.defined())
    throw UserError("{}: tensor {} occurs twice, under two names; save the adapter again",
                    source.label(), printable(info.name));
  slot = read_adapter_tensor(source, info);
}

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

// `module`: PEFT's name.
NamedTensors tensors_of_module(const std::string& module, const ModuleAdapter& parts) {
  const std::string name = std::string(kPrefix) + module;
  NamedTensors all{{name + ".lora_A.weight", parts.a}, {name + ".lora_B.weight", parts.b}};
  // Without ".weight", which every version of PEFT writes and reads.
  if (parts.magnitude.defined()) all.emplace_back(name + ".lora_magnitude_vector", parts.magnitude);
  return all;
}

std::string name_of_base_weight(const Adapter& adapter, const std::string& parameter) {
  const std::string module = parameter.substr(0, parameter.rfind('.'));
  const bool adapted = adapter.modules.contains(module);
  return std::string(kPrefix) +
         peft_name(adapter.config, adapted ? module + ".base_layer.weight" : parameter);
}

// Those that PEFT has in a stack.
std::set<std::string> stacked_modules(const Adapter& adapter) {
  std::set<std::string> stacked;
  for (const ExpertStack& stack : adapter.stacks)
    stacked.insert(stack.modules.begin(), stack.modules.end());
  return stacked;
}

using ModuleValues = std::function<ModuleAdapter(const std::string& module)>;

// Calls body(PEFT's name, adapter) for each of PEFT's modules, one at a time in memory.
template <class Body>
void for_each_module(const Adapter& adapter, const ModuleValues& values, const Body& body) {
  const std::set<std::string> stacked = stacked_modules(adapter);
  for (const auto& [module, _] : adapter.modules)
    if (!stacked.contains(module)) body(peft_name(adapter.config, module), values(module));
  for (const auto& [module, stack] : modules_of_stacks(adapter.stacks)) {
    std::vector<ModuleAdapter> experts;
    for (const std::string& expert : stack.modules) experts.push_back(values(expert));
    body(peft_name(adapter.config, module), join_experts(experts, stack.paired));
  }
}

ModuleValues own_values(const Adapter& adapter) {
  return [&adapter](const std::string& module) { return adapter.modules.at(module); };
}

std::vector<files::TensorInfo> infos_of(const Adapter& adapter) {
  std::vector<files::TensorInfo> infos;
  const auto add = [&](const std::string& name, const at::Tensor& tensor) {
    infos.push_back(files::make_tensor_info(name, dtype_of(tensor), tensor.sizes().vec()));
  };
  for_each_module(adapter, own_values(adapter),
                  [&](const std::string& module, const ModuleAdapter& parts) {
                    for (const auto& [name, tensor] : tensors_of_module(module, parts))
                      add(name, tensor);
                  });
  for (const auto& [parameter, weight] : adapter.base_weights)
    add(name_of_base_weight(adapter, parameter), weight);
  return infos;
}

// transformers 5 has the experts of a mixture as one parameter, whatever its files hold.
bool adapts_experts(const Adapter& adapter) {
  return std::ranges::any_of(adapter.modules, [](const auto& module) {
    return module.first.find(".experts.") != std::string::npos;
  });
}

// Replaces a regular expression by the names of the modules it chose: PEFT refuses one that also
// matches modules other than linear layers, as ".*mlp.*" does. So it does with ends of names within
// a model of several parts, where they would match other parts' layers. Stacked experts are none:
// PEFT wants their parameters' names. Where it makes one parameter of experts it takes no dropout,
// which only training has, and doubles rank and alpha of gate and up: alpha / sqrt(r) would become
// another.
AdapterConfig config_for_peft(const Adapter& adapter) {
  AdapterConfig config = adapter.config;
  if (adapts_experts(adapter)) {
    config.lora_dropout = 0;
    if (config.use_rslora) config.lora_alpha *= std::sqrt(static_cast<double>(config.r));
    config.use_rslora = false;
  }
  const bool needs_names = !config.target_modules.pattern.empty() || !adapter.config.within.empty();
  if (!needs_names && adapter.stacks.empty()) return config;
  config.target_modules = {};
  const std::set<std::string> stacked = stacked_modules(adapter);
  for (const auto& [module, _] : adapter.modules)
    if (!stacked.contains(module)) config.target_modules.names.push_back(peft_name(config, module));
  config.target_parameters = {};
  for (const ExpertStack& stack : adapter.stacks)
    config.target_parameters.push_back(peft_name(config, stack.parameter));
  return config;
}

// Makes of PEFT's modules of stacks the experts' own.
void split_stacks(Adapter& adapter, const std::vector<ExpertStack>& known,
                  const std::string& where) {
  if (adapter.config.target_parameters.empty()) return;
  for (const ExpertStack& stack : known) {
    const AdapterConfig only{.target_modules = {.names = {""}},
                             .target_parameters = adapter.config.target_parameters,
                             .within = adapter.config.within};
    if (adapts(only, stack.modules.front())) adapter.stacks.push_back(stack);
  }
  if (adapter.stacks.empty())
    throw UserError(
        "{}: it adapts the parameters {}, which the base does not have as one; merge the adapter "
        "with peft (merge_and_unload) and use the merged model",
        where, fmt::join(adapter.config.target_parameters, ", "));
  for (const auto& [module, stack] : modules_of_stacks(adapter.stacks)) {
    auto found = adapter.modules.extract(module);
    if (found.empty() || !found.mapped().a.defined() || !found.mapped().b.defined())
      throw UserError("{}: {}, which adapts {}, is missing; save or fetch the adapter again", where,
                      module, stack.parameter);
    const std::vector<ModuleAdapter> experts = split_experts(
        found.mapped(), std::ssize(stack.modules), stack.paired, where + ": " + stack.parameter);
    for (size_t e = 0; e < experts.size(); ++e) adapter.modules[stack.modules[e]] = experts[e];
  }
}

}  // namespace

bool is_peft_directory(const fs::path& directory) {
  return fs::is_regular_file(directory / kConfigName);
}

std::vector<int64_t> base_weight_shape(const fs::path& directory, const std::string& name) {
  AdapterConfig config = read_peft_config(directory / kConfigName);
  const auto source = open_weights(directory);
  config.within = language_prefix(*source);
  for (const files::TensorInfo& info : source->tensors()) {
    if (is_of_wrapper(info.name, *source)) continue;
    const Key key = parse_key(info.name, config, source->label());
    if (key.kind == Kind::BaseWeight && key.module == name) return info.shape;
  }
  return {};
}

Adapter read_peft_adapter(const fs::path& directory, const std::vector<ExpertStack>& stacks) {
  Adapter adapter;
  adapter.config = read_peft_config(directory / kConfigName);
  const auto source = open_weights(directory);
  adapter.config.within = language_prefix(*source);
  std::string name;  // of the adapter, if the file has one
  for (const files::TensorInfo& info : source->tensors()) {
    if (is_of_wrapper(info.name, *source)) continue;
    const Key key = parse_key(info.name, adapter.config, source->label());
    if (!key.adapter.empty() && !name.empty() && key.adapter != name)
      throw UserError("{} holds two adapters, {} and {}; save each in its own folder",
                      source->label(), printable(name), printable(key.adapter));
    if (!key.adapter.empty()) name = key.adapter;
    if (key.kind == Kind::BaseWeight) {
      place(adapter.base_weights[key.module], info, *source);
      continue;
    }
    ModuleAdapter& parts = adapter.modules[key.module];
    place(key.kind == Kind::A   ? parts.a
          : key.kind == Kind::B ? parts.b
                                : parts.magnitude,
          info, *source);
  }
  split_stacks(adapter, stacks, source->label());
  check_and_scale(adapter, source->label());
  return adapter;
}

void write_peft_files(const fs::path& folder, const Adapter& adapter) {
  write_peft_files(
      folder, adapter,
      {.module = [&](const std::string& module) { return adapter.modules.at(module); },
       .base_weight = [&](const std::string& name) { return adapter.base_weights.at(name); }});
}

void write_peft_files(const fs::path& folder, const Adapter& shapes, const AdapterValues& values) {
  files::SafetensorsWriter out(folder / kWeightsName, infos_of(shapes), kMetadata);
  const auto write = [&](const std::string& name, const at::Tensor& like, const at::Tensor& value) {
    const at::Tensor plain = value.detach().to(at::kCPU, like.scalar_type()).contiguous();
    out.write(name, bytes_of(plain));
  };
  std::map<std::string, at::Tensor> like;
  for_each_module(shapes, own_values(shapes),
                  [&](const std::string& module, const ModuleAdapter& parts) {
                    for (auto& [name, tensor] : tensors_of_module(module, parts))
                      like[name] = std::move(tensor);
                  });
  for_each_module(shapes, values.module,
                  [&](const std::string& module, const ModuleAdapter& parts) {
                    for (const auto& [name, tensor] : tensors_of_module(module, parts))
                      write(name, like.at(name), tensor);
                  });
  for (const auto& [parameter, weight] : shapes.base_weights)
    write(name_of_base_weight(shapes, parameter), weight, values.base_weight(parameter));
  out.finish();
  write_file_atomically(folder / kConfigName, peft_config_text(config_for_peft(shapes)));
}

int64_t peft_bytes(const Adapter& shapes) {
  return files::safetensors_bytes(infos_of(shapes), kMetadata) +
         std::ssize(peft_config_text(config_for_peft(shapes)));
}

}  // namespace snug::checkpoint
