// SPDX-License-Identifier: Apache-2.0
#include "engine/adapters/adapters.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <map>
#include <memory>
#include <string_view>
#include <unordered_map>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "core/memory/placement.h"
#include "core/nn/head.h"
#include "core/nn/precision.h"
#include "core/ops/elementwise.h"
#include "core/ops/linear/projection.h"
#include "engine/adapters/pissa.h"
#include "engine/adapters/started_adapter.h"
#include "engine/parallel/tensor_parallel.h"
#include "models/quantized_folder.h"

namespace snug::engine {
namespace {

// Whether LitGPT's switch for this role is on.
bool is_switched_on(const recipe::LoraOptions& o, nn::Role role) {
  switch (role) {
    case nn::Role::Query:
      return o.query;
    case nn::Role::Key:
      return o.key;
    case nn::Role::Value:
      return o.value;
    case nn::Role::Projection:
      return o.projection;
    case nn::Role::MlpInput:
    case nn::Role::MlpOutput:
      return o.mlp;
    case nn::Role::Head:
      return o.head;
    case nn::Role::Score:
    case nn::Role::Other:
      return false;
  }
  return false;
}

// The last components of the layers' names: q_proj, k_proj, ….
std::vector<std::string> last_names(const std::vector<nn::Linear*>& linears) {
  std::vector<std::string> names;
  for (const nn::Linear* linear : linears) {
    const std::string& name = linear->name();
    std::string last = name.substr(name.rfind('.') + 1);
    if (std::find(names.begin(), names.end(), last) == names.end())
      names.push_back(std::move(last));
  }
  return names;
}

// A regular expression for these layers alone: for each last component what all names with it begin
// with.
std::string pattern_of(const std::vector<nn::Linear*>& linears) {
  std::map<std::string, std::string> beginnings;
  for (const nn::Linear* linear : linears) {
    const std::string& name = linear->name();
    const size_t last = name.rfind('.') + 1;
    const auto [found, is_new] = beginnings.try_emplace(name.substr(last), name.substr(0, last));
    std::string& begin = found->second;
    if (!is_new) begin.erase(std::ranges::mismatch(begin, name).in1, begin.end());
  }
  std::string pattern;
  for (const auto& [last, begin] : beginnings)
    pattern.append(pattern.empty() ? "" : "|").append(begin).append(".*").append(last);
  return pattern;
}

std::string within(const models::Model& model) {
  return model.whole() == nullptr ? "" : models::kLanguageLayers;
}

// The layers that get adapters, as PEFT's target_modules where that can express them.
checkpoint::ModuleChoice targets(const std::vector<nn::Linear*>& linears,
                                 const recipe::LoraOptions& options) {
  checkpoint::ModuleChoice choice;
  const std::string& text = options.target_modules;
  if (text == "all-linear" || text.find_first_of("()[]*+?\\|^$") != std::string::npos)
    choice.pattern = text;
  else {
    std::string list = text;
    std::ranges::replace(list, ' ', ',');
    choice.names = split_list(list);
  }
  if (!text.empty()) return choice;
  std::vector<nn::Linear*> wanted;
  std::copy_if(linears.begin(), linears.end(), std::back_inserter(wanted),
               [&](const nn::Linear* linear) { return is_switched_on(options, linear->role()); });
  choice.names = last_names(wanted);
  if (choice.names.empty())
    throw UserError(
        "no layer gets an adapter: lora_query, lora_key, lora_value, lora_projection, lora_mlp and "
        "lora_head are all false; set one of them, or name layers with lora_target_modules");
  // Where a vision model's layers have the same names, endings would name those too.
  const bool ends_alike = std::ranges::any_of(linears, [&](const nn::Linear* linear) {
    return !is_switched_on(options, linear->role()) &&
           checkpoint::adapts({.target_modules = choice}, linear->name());
  });
  if (ends_alike) choice = {.names = {}, .pattern = pattern_of(wanted)};
  return choice;
}

bool any_adapted(const std::vector<nn::Linear*>& linears, const checkpoint::AdapterConfig& config) {
  return std::any_of(linears.begin(), linears.end(), [&](const nn::Linear* linear) {
    return checkpoint::adapts(config, linear->name());
  });
}

// Checks that each name and pattern matches a layer.
void check_targets(const std::vector<nn::Linear*>& linears, const checkpoint::AdapterConfig& config,
                   const std::string& text) {
  try {
    checkpoint::adapts(config, "");
  } catch (const UserError&) {
    throw UserError(
        "lora_target_modules = {}: is not a regular expression; give names such as q_proj,v_proj, "
        "all-linear, or an expression that matches whole names, such as .*self_attn.*_proj",
        text);
  }
  std::vector<std::string> unknown;
  for (const std::string& name : config.target_modules.names)
    if (!any_adapted(linears, {.target_modules = {.names = {name}}, .within = config.within}))
      unknown.push_back(name);
  if (unknown.empty() && any_adapted(linears, config)) return;
  std::vector<std::string> names = last_names(linears);
  const std::string layers = fmt::format("{}", fmt::join(names, ", "));
  names.emplace_back("all-linear");
  const std::string near = unknown.empty() ? "" : nearest_name(unknown.front(), names);
  throw UserError("lora_target_modules = {}: {} no layer of this model, whose layers are {}{}",
                  text,
                  unknown.empty() ? "matches" : fmt::format("{} names", fmt::join(unknown, ", ")),
                  layers, near.empty() ? "" : fmt::format("; did you mean {}?", near));
}

// PiSSA's initial values, rounded to `type`, the adapter's type on the device.
LowRankStart start_of(const nn::Linear& linear, at::ScalarType type, const ParameterReader& read) {
  const nn::Adapter& adapter = *linear.adapter();
  LowRankStart start =
      pissa_start(read(linear.weight()), adapter.options.rank, adapter.options.scaling);
  start.a = start.a.to(type).to(at::kFloat);
  start.b = start.b.to(type).to(at::kFloat);
  return start;
}

// The layer's weight from where it is kept: with weight streaming that is the host.
ops::Projection kept_weight(const nn::Linear& linear) {
  const nn::Parameter& w = linear.weight();
  return {.weight = w.stored(w.kept()), .part = linear.part()};
}

// The layer's weight, read from disk if it belongs to another unit that is not loaded at the
// moment.
ops::Projection weight_there_is(const nn::Linear& linear, const ParameterReader& read) {
  const nn::Parameter& w = linear.weight();
  if (!linear.is_tied() || !memory::is_vacant(w.kept())) return kept_weight(linear);
  return {.weight = read(w).to(w.value.scalar_type()).to(w.value.device())};
}

// PiSSA subtracts the adapter's initial product from the weight, so the weight must not be tied.
void check_start(const nn::Linear& linear, const recipe::LoraOptions& options) {
  if (options.init_weights == recipe::AdapterInit::Pissa && linear.is_tied())
    throw UserError(
        "lora_init_weights = pissa: {} shares its weight with the embedding, which must not "
        "change; use lora_init_weights default, or leave the head out",
        linear.name());
}

void start_with_pissa(nn::Linear& linear, const ParameterReader& read) {
  nn::Adapter& adapter = *linear.adapter();
  const LowRankStart start = start_of(linear, adapter.a.value.scalar_type(), read);
  adapter.a.write(start.a);
  adapter.b.write(start.b);
  const at::Tensor rest =
      read(linear.weight()).addmm_(start.b, start.a, 1, -adapter.options.scaling);
  linear.weight().write(rest);
}

// A rank beyond the smaller side of every layer adds weights and nothing that they could say.
void check_rank(const std::vector<nn::Linear*>& linears, const checkpoint::AdapterConfig& config) {
  const nn::Linear* largest = nullptr;
  const auto smaller_side = [](const nn::Linear* linear) {
    return std::ranges::min(linear->weight().whole_shape());
  };
  for (const nn::Linear* linear : linears)
    if (checkpoint::adapts(config, linear->name()) &&
        (largest == nullptr || smaller_side(linear) > smaller_side(largest)))
      largest = linear;
  if (largest == nullptr || config.r <= smaller_side(largest)) return;
  const std::vector<int64_t>& shape = largest->weight().whole_shape();
  throw UserError(
      "lora_r = {}: the largest layer with adapters, {}, is {} x {}, where a rank above {} adds "
      "nothing; use {} at most",
      config.r, largest->name(), shape[0], shape[1], smaller_side(largest), smaller_side(largest));
}

// PEFT adapts all experts of a tensor or none, without DoRA.
void check_stacks(const std::vector<checkpoint::ExpertStack>& stacks,
                  const checkpoint::AdapterConfig& config) {
  for (const checkpoint::ExpertStack& stack : stacks) {
    const auto adapted = std::ranges::count_if(
        stack.modules, [&](const auto& name) { return checkpoint::adapts(config, name); });
    if (adapted > 0 && config.use_dora)
      throw UserError(
          "lora_use_dora: peft has no DoRA for {}, which is one tensor of all experts; train "
          "without it, or leave the experts out (lora_mlp false)",
          stack.parameter);
    if (adapted > 0 && adapted < std::ssize(stack.modules))
      throw UserError(
          "lora_target_modules: names {} of the {} experts of {}, which is one tensor; name all of "
          "them or none",
          adapted, stack.modules.size(), stack.parameter);
  }
}

std::shared_ptr<nn::Adapter> new_adapter(const nn::Linear& linear,
                                         const checkpoint::AdapterConfig& config) {
  const std::vector<int64_t>& whole = linear.weight().whole_shape();
  auto adapter = std::make_shared<nn::Adapter>(
      linear.name(), whole[1], whole[0],
      nn::AdapterOptions{.rank = checkpoint::rank_of(config, linear.name()),
                         .scaling = checkpoint::scaling_of(config, linear.name()),
                         .dropout = config.lora_dropout,
                         .magnitude = config.use_dora});
  adapter->cut_as(linear.weight());
  return adapter;
}

// Whether PEFT adapts the tensor, of all experts, by its name: gpt-oss' matrices of (in, out).
bool is_stack_of_peft(const models::Placement& place) {
  return place.stacked > 0 && place.transposed;
}

// Whether experts are adapted that are one tensor in files, by a name of the files alone (Granite).
bool adapts_part_of_stack(models::Model& model, const checkpoint::AdapterConfig& config) {
  return std::ranges::any_of(linears_of(model), [&](const nn::Linear* linear) {
    return checkpoint::adapts(config, linear->name()) &&
           model.placement(models::Layout::HuggingFace, linear->weight()).stacked > 0;
  });
}

// peft makes of experts' adapters one of transformers 5's single parameter, and cannot of all.
std::string unloadable_in_peft(const std::vector<nn::Linear*>& linears,
                               const checkpoint::AdapterConfig& config) {
  struct Count {
    int64_t adapted = 0, all = 0;
  };
  std::map<std::string, Count> experts;  // of one kind of layer of one block
  bool dense = false;                    // a block without experts is adapted too
  bool shared = false;                   // every token's expert is there, adapted or not
  for (const nn::Linear* linear : linears) {
    const std::string& name = linear->name();
    const bool adapted = checkpoint::adapts(config, name);
    const size_t at = name.find(".experts.");
    if (at == std::string::npos) {
      shared |= name.find(".shared_expert") != std::string::npos;
      dense |= adapted && name.find(".mlp.") != std::string::npos;
      continue;
    }
    Count& count = experts[name.substr(0, at) + name.substr(name.rfind('.'))];
    count.all += 1;
    count.adapted += adapted ? 1 : 0;
  }
  const auto is_adapted = [](const auto& entry) { return entry.second.adapted > 0; };
  if (std::ranges::none_of(experts, is_adapted)) return "";
  if (config.use_dora) return "it has no DoRA for them";
  if (shared) return "beside a shared expert it loads only some of them, without a word";
  if (dense) return "it drops those of blocks without experts";
  for (const auto& [name, count] : experts) {
    if (count.adapted != 0 && count.adapted != count.all) return "it takes all experts or none";
    for (const auto& [gate, up] : {std::pair(".gate_proj", ".up_proj"), std::pair(".w1", ".w3")}) {
      if (!name.ends_with(gate)) continue;
      const std::string other = name.substr(0, name.size() - std::string_view(gate).size()) + up;
      const auto found = experts.find(other);
      if (found != experts.end() && (count.adapted > 0) != (found->second.adapted > 0))
        return "it takes the layers of gates and ups together";
    }
  }
  return "";
}

}  // namespace

std::vector<nn::Linear*> linears_of(models::Model& model) {
  std::vector<nn::Linear*> all;
  for (nn::Unit* unit : model.units())
    for (nn::Linear* linear : unit->linears()) all.push_back(linear);
  return all;
}

std::vector<nn::Linear*> adaptable_linears(models::Model& model) {
  std::vector<nn::Linear*> all = linears_of(model);
  std::erase_if(all, [](const auto* linear) { return linear->role() == nn::Role::Score; });
  return all;
}

checkpoint::AdapterConfig adapter_config(models::Model& model, const recipe::LoraOptions& options) {
  const std::vector<nn::Linear*> linears = adaptable_linears(model);
  checkpoint::AdapterConfig config;
  if (options.adapter.empty())
    config = {.r = options.r,
              .lora_alpha = static_cast<double>(options.alpha),
              .lora_dropout = options.dropout,
              .target_modules = targets(linears, options),
              .use_rslora = options.use_rslora,
              .use_dora = options.use_dora};
  else
    config = started_config(options);
  config.within = within(model);
  if (!model.labels().empty()) config.task_type = checkpoint::kScoresDocuments;
  check_targets(linears, config, options.target_modules);
  check_rank(linears, config);
  const std::vector<checkpoint::ExpertStack> stacks = expert_stacks(model);
  check_stacks(stacks, config);
  std::string why = stacks.empty() ? unloadable_in_peft(linears, config) : "";
  if (stacks.empty() && adapts_part_of_stack(model, config))
    why = "there they are one parameter of another name";
  if (!why.empty())
    warn(
        "peft does not load these adapters of experts into a model of transformers 5: {}; snug "
        "generate, evaluate and merge do",
        why);
  config.fan_in_fan_out = std::ranges::any_of(linears, [&](nn::Linear* linear) {
    if (!checkpoint::adapts(config, linear->name())) return false;
    const models::Placement place = model.placement(models::Layout::HuggingFace, linear->weight());
    return place.transposed && place.stacked == 0;
  });
  return config;
}

std::vector<checkpoint::ExpertStack> expert_stacks(models::Model& model) {
  std::vector<checkpoint::ExpertStack> stacks;
  for (const nn::Linear* linear : linears_of(model)) {
    const models::Placement place = model.placement(models::Layout::HuggingFace, linear->weight());
    if (!is_stack_of_peft(place)) continue;
    const auto known = std::ranges::find(stacks, place.tensor, &checkpoint::ExpertStack::parameter);
    if (known == stacks.end())
      stacks.push_back({place.tensor, {linear->name()}, place.order.differs()});
    else
      known->modules.push_back(linear->name());
  }
  return stacks;
}

void add_adapters(models::Model& model, const recipe::LoraOptions& options) {
  if (!options.enabled) return;
  const checkpoint::AdapterConfig config = adapter_config(model, options);
  remove_adapters(model);
  for (nn::Parameter* parameter : model.parameters()) parameter->trained = false;
  for (nn::Linear* linear : linears_of(model))
    if (linear->role() == nn::Role::Score) linear->weight().trained = true;
  for (nn::Linear* linear : adaptable_linears(model)) {
    if (!checkpoint::adapts(config, linear->name())) continue;
    check_start(*linear, options);
    auto adapter = new_adapter(*linear, config);
    if (options.init_weights == recipe::AdapterInit::Gaussian) {
      adapter->a.init = nn::Init::Normal;
      adapter->a.init_scale = 1 / static_cast<double>(options.r);
    }
    linear->set_adapter(std::move(adapter));
  }
}

bool start_from_weights(const recipe::LoraOptions& options) {
  return options.enabled &&
         (options.init_weights == recipe::AdapterInit::Pissa || options.use_dora);
}

void initialize_adapters(nn::Unit& unit, const recipe::LoraOptions& options, uint64_t seed,
                         double deviation, const ParameterReader& read) {
  if (!options.enabled) return;
  for (nn::Parameter* parameter : unit.parameters())
    if (parameter->is_added()) parameter->initialize(seed, deviation);
  for (nn::Linear* linear : unit.linears()) {
    nn::Adapter* adapter = linear->adapter();
    if (adapter == nullptr || linear->weight().is_elsewhere()) continue;
    if (options.init_weights == recipe::AdapterInit::Pissa) start_with_pissa(*linear, read);
    if (adapter->options.magnitude)
      ops::copy(adapter->magnitude.kept().detach(), ops::row_norms(weight_there_is(*linear, read)));
  }
}

namespace {

at::Tensor on_meta(at::IntArrayRef shape, at::ScalarType type) {
  return at::empty(shape, at::TensorOptions().dtype(type).device(at::kMeta));
}

// The shape in a file of a base parameter that trains beside the adapters.
std::vector<int64_t> shape_in_file(const nn::Parameter& parameter, const models::Model& model) {
  const models::Placement place = model.placement(models::Layout::HuggingFace, parameter);
  SNUG_CHECK(place.tensor == parameter.name && !place.transposed,
             "{} is stored as {} in files, so it cannot train beside adapters", parameter.name,
             place.tensor);
  return place.shape.empty() ? parameter.whole_shape() : place.shape;
}

const std::string kScoreWeight = std::string(nn::kScoreLayer) + ".weight";

bool trains_beside_adapters(const nn::Parameter& parameter) {
  return parameter.trained && !parameter.is_added();
}

// Adds base parameters that train beside the adapters, as PEFT's modules_to_save. A parameter that
// is not in a module of its own is stored as well, under a name that PEFT can find. Where a head
// has the embedding's weight, PEFT keeps a copy for each.
void add_trained_base(checkpoint::Adapter& adapter, models::Model& model, at::ScalarType type) {
  const std::vector<nn::Parameter*> vocabulary = models::vocabulary_parameters(model);
  bool is_of_ends = true;  // embedding and head alone
  const auto add = [&](const std::string& name, const nn::Parameter& parameter, bool is_of_end) {
    adapter.base_weights[name] = on_meta(shape_in_file(parameter, model), type);
    // PEFT looks for the ends of names, and wraps no module that adapters lie in.
    constexpr std::string_view kModel = "model.";
    const size_t last = name.rfind('.');
    const size_t begin = is_of_end                  ? name.rfind('.', last - 1) + 1
                         : name.starts_with(kModel) ? kModel.size()
                                                    : 0;
    const size_t end = name.find('.', begin);
    const std::string module = name.substr(begin, end - begin);
    is_of_ends &= is_of_end && !checkpoint::adapts(adapter.config, name.substr(0, last));
    std::vector<std::string>& modules = adapter.config.modules_to_save;
    if (end != std::string::npos && std::ranges::find(modules, module) == modules.end())
      modules.push_back(module);
  };
  for (const nn::Parameter* parameter : model.parameters())
    if (trains_beside_adapters(*parameter))
      add(parameter->name, *parameter,
          std::ranges::count(vocabulary, parameter) > 0 || parameter->name == kScoreWeight);
  for (const nn::Linear* linear : linears_of(model))
    if (linear->is_tied() && trains_beside_adapters(linear->weight()))
      add(linear->name() + ".weight", linear->weight(), /*is_of_end=*/true);
  if (is_of_ends) return;
  // Short names such as "query" would match layers of these modules too.
  adapter.config.target_modules = {};
  for (const auto& [module, _] : adapter.modules)
    adapter.config.target_modules.names.push_back(module);
}

}  // namespace

checkpoint::Adapter adapter_shapes(models::Model& model, const recipe::LoraOptions& options,
                                   at::ScalarType type) {
  checkpoint::Adapter result{.config = adapter_config(model, options)};
  const int64_t parts =
      options.init_weights == recipe::AdapterInit::Pissa ? 2 : 1;  // the start is taken away again
  result.config.r *= parts;
  if (parts == 2) result.config.lora_alpha *= options.use_rslora ? std::sqrt(2.0) : 2.0;
  for (const nn::Linear* linear : linears_of(model)) {
    const nn::Adapter* adapter = linear->adapter();
    if (adapter == nullptr) continue;
    const std::vector<int64_t> a = adapter->a.whole_shape(), b = adapter->b.whole_shape();
    checkpoint::ModuleAdapter& module = result.modules[linear->name()];
    module = {.a = on_meta({a[0] * parts, a[1]}, type),
              .b = on_meta({b[0], b[1] * parts}, type),
              .scaling = adapter->options.scaling};
    if (adapter->options.magnitude)
      module.magnitude = on_meta(adapter->magnitude.whole_shape(), type);
  }
  for (const checkpoint::ExpertStack& stack : expert_stacks(model))
    if (result.modules.contains(stack.modules.front())) result.stacks.push_back(stack);
  add_trained_base(result, model, type);
  return result;
}

checkpoint::AdapterValues adapter_values(models::Model& model, const recipe::LoraOptions& options,
                                         at::ScalarType device_type, const ParameterReader& trained,
                                         const ParameterReader& base) {
  std::unordered_map<std::string, const nn::Linear*> adapted;
  for (const nn::Linear* linear : linears_of(model))
    if (linear->adapter() != nullptr) adapted[linear->name()] = linear;
  std::unordered_map<std::string, const nn::Parameter*> whole;
  for (const nn::Parameter* parameter : model.parameters())
    if (trains_beside_adapters(*parameter)) whole[parameter->name] = parameter;
  const bool pissa = options.init_weights == recipe::AdapterInit::Pissa;
  for (const nn::Linear* linear : linears_of(model))
    if (linear->is_tied()) whole[linear->name() + ".weight"] = &linear->weight();
  return {.module =
              [=](const std::string& name) {
                const nn::Adapter& adapter = *adapted.at(name)->adapter();
                checkpoint::ModuleAdapter module{.a = trained(adapter.a),
                                                 .b = trained(adapter.b),
                                                 .scaling = adapter.options.scaling};
                if (adapter.options.magnitude) module.magnitude = trained(adapter.magnitude);
                if (!pissa) return module;
                return relative_to_base(module, start_of(*adapted.at(name), device_type, base));
              },
          .base_weight =
              [=, &model](const std::string& name) {
                const nn::Parameter& parameter = *whole.at(name);
                return trained(parameter).view(shape_in_file(parameter, model));
              }};
}

void remove_adapters(models::Model& model) {
  for (nn::Linear* linear : linears_of(model)) linear->set_adapter(nullptr);
}

namespace {

// "bnb.nf4-dq" is stored as nf4-dq, "bnb.int8-training" as int8.
kernels::QuantizedFormat format_of(recipe::Quantize option) {
  constexpr size_t kPrefix = std::string_view("bnb.").size();
  const std::string_view word = recipe::word_of(option);
  return kernels::quantized_format_named(word.substr(kPrefix, word.find("-training") - kPrefix))
      .value();
}

}  // namespace

void quantize_weights(models::Model& model, const recipe::Recipe& recipe,
                      const std::vector<nn::Unit*>& whole) {
  if (recipe.quantize.empty()) return;
  const kernels::QuantizedFormat format = format_of(recipe.quantize.value());
  const at::ScalarType source = nn::parse_precision(recipe.precision).parameters;
  for (nn::Unit* unit : model.units()) {
    if (std::ranges::find(whole, unit) != whole.end()) continue;
    for (nn::Linear* linear : unit->linears())
      if (linear->role() != nn::Role::Head && linear->role() != nn::Role::Score &&
          !linear->weight().stays_plain)
        linear->weight().quantization = nn::Quantization{.format = format, .source = source};
  }
}

void resolve_quantize(recipe::Recipe& recipe, const std::filesystem::path& folder) {
  constexpr std::string_view kNested = "-dq";
  // PiSSA's frozen weights are no longer the folder's.
  const bool changes_base = recipe.lora.init_weights == recipe::AdapterInit::Pissa;
  if (!recipe.lora.enabled || recipe.given("quantize") || !recipe.quantize.empty() || changes_base)
    return;
  std::string stored = models::stored_quantization(folder);
  const bool cuts_matrices = recipe.mesh.find("tp=") != std::string::npos;
  if (cuts_matrices && stored.ends_with(kNested)) stored.resize(stored.size() - kNested.size());
  if (stored.empty() || (cuts_matrices && stored == recipe::word_of(recipe::Quantize::Int8)))
    return;
  recipe.quantize = recipe::Word<recipe::Quantize>(stored);
  if (folder.string().find("-unsloth-bnb-") != std::string::npos &&
      !std::filesystem::exists(folder))
    warn(
        "{}: such folders keep some layers in 16 bits, which ones is not known without their "
        "config",
        folder.string());
  detail(
      "the weights in {} are in {} bits and stay so beside adapters (quantize = {}); --quantize "
      "none "
      "trains beside the numbers that they stand for",
      folder.string(), stored == recipe::word_of(recipe::Quantize::Int8) ? 8 : 4, stored);
}

ParameterCount count_parameters(models::Model& model) {
  ParameterCount count;
  for (const nn::Parameter* parameter : model.parameters()) {
    if (!parameter->constant) count.total += parameter->num_elements();
    if (parameter->trained) count.trained += parameter->num_elements();
  }
  return count;
}

}  // namespace snug::engine
