// Finds the modules that a configuration adapts, by PEFT's rules.
// SPDX-License-Identifier: Apache-2.0
#include "files/checkpoint/adapters/adapter.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/isfinite.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>
#include <string_view>

#include "base/error.h"
#include "files/weights/byte_reader.h"
#include "text/tokenizer/regex.h"

namespace snug::checkpoint {
namespace {

// PEFT's name for every linear layer but the head.
constexpr const char* kAllLinear = "all-linear";
constexpr std::array<std::string_view, 2> kHeads = {"lm_head", "embed_out"};  // GPT-NeoX's

bool matches_whole(const std::string& pattern, const std::string& name, const char* key) {
  // In a group, since the pattern may have alternatives.
  const tokenizer::Regex regex("\\A(?:" + pattern + ")\\z",
                               std::string("adapter_config.json: ") + key);
  return regex.find(name, 0).first == 0;
}

bool is_in(const ModuleChoice& choice, const std::string& module, const char* key) {
  // A part of a model that looks at pictures has its head deeper.
  if (choice.pattern == kAllLinear)
    return std::ranges::count(kHeads, module.substr(module.rfind('.') + 1)) == 0;
  if (!choice.pattern.empty()) return matches_whole(choice.pattern, module, key);
  return std::ranges::any_of(choice.names, [&](const std::string& name) {
    const size_t before = module.size() - name.size();
    return module.ends_with(name) && (before == 0 || module[before - 1] == '.');
  });
}

// The layer number in "model.layers.3.mlp": the first number after one of `words`, or, without
// words, after any two name components, as in PEFT.
std::optional<int64_t> layer_of(const std::string& module, const std::vector<std::string>& words) {
  int names_before = 0;
  for (size_t begin = 0, end = module.find('.'); end != std::string::npos;
       begin = end + 1, end = module.find('.', begin), ++names_before) {
    int64_t number = 0;
    const char *first = module.data() + begin, *last = module.data() + end;
    const auto [stop, fault] = std::from_chars(first, last, number);
    if (first == last || fault != std::errc() || stop != last || names_before == 0) continue;
    const std::string before = module.substr(0, begin - 1);
    const bool counts =
        words.empty() ? names_before >= 2 : std::ranges::any_of(words, [&](const auto& word) {
          return before == word || before.ends_with("." + word);
        });
    if (counts) return number;
  }
  return {};
}

// "experts.3.down_proj" is of the parameter "experts.down_proj".
bool is_of_parameters(const std::vector<std::string>& names, const std::string& module) {
  if (names.empty()) return false;
  const size_t layer = module.rfind('.');
  const size_t number = layer == std::string::npos ? layer : module.rfind('.', layer - 1);
  if (number == std::string::npos || number + 1 == layer) return false;
  if (module.find_first_not_of("0123456789", number + 1) != layer) return false;
  const std::string parameter = module.substr(0, number) + module.substr(layer);
  return std::ranges::any_of(names, [&](const std::string& name) {
    return parameter == name || parameter.ends_with("." + name);
  });
}

// The value of the first pattern that matches the end of the module's name.
template <class Value>
Value by_pattern(const std::vector<std::pair<std::string, Value>>& patterns,
                 const std::string& module, Value otherwise, const char* key) {
  for (const auto& [pattern, value] : patterns)
    if (matches_whole("(?:.*\\.)?(?:" + pattern + ")", module, key)) return value;
  return otherwise;
}

constexpr std::string_view kModel = "model.";

// A choice may be given in our names or in PEFT's.
bool chooses(const AdapterConfig& config, const ModuleChoice& choice, const std::string& module,
             const char* key) {
  if (is_in(choice, module, key)) return true;
  const std::string name = peft_name(config, module);
  return name != module && is_in(choice, name, key);
}

}  // namespace

std::string peft_name(const AdapterConfig& config, const std::string& own) {
  if (config.within.empty() || !own.starts_with(kModel)) return own;
  return config.within + own.substr(kModel.size());
}

std::string own_name(const AdapterConfig& config, const std::string& name) {
  if (config.within.empty() || !name.starts_with(config.within)) return name;
  return std::string(kModel) + name.substr(config.within.size());
}

bool adapts(const AdapterConfig& config, const std::string& module) {
  if (chooses(config, config.exclude_modules, module, "exclude_modules")) return false;
  // What trains in full has no adapters in it.
  if (std::ranges::any_of(config.modules_to_save, [&](const std::string& saved) {
        return ("." + module).find("." + own_name(config, saved) + ".") != std::string::npos;
      }))
    return false;
  const std::string name = peft_name(config, module);
  if (is_of_parameters(config.target_parameters, module) ||
      is_of_parameters(config.target_parameters, name))
    return true;
  if (config.target_modules.empty()) return true;
  if (!chooses(config, config.target_modules, module, "target_modules")) return false;
  const auto& layers = config.layers_to_transform;
  const std::vector<std::string>& names = config.target_modules.names;
  const bool named_whole = std::ranges::count(names, module) + std::ranges::count(names, name) > 0;
  if (layers.empty() || !config.target_modules.pattern.empty() || named_whole) return true;
  const std::optional<int64_t> layer = layer_of(module, config.layers_pattern);
  return layer && std::ranges::count(layers, *layer) > 0;
}

int64_t rank_of(const AdapterConfig& config, const std::string& module) {
  return by_pattern(config.rank_pattern, peft_name(config, module), config.r, "rank_pattern");
}

double scaling_of(const AdapterConfig& config, const std::string& module) {
  const double alpha = by_pattern(config.alpha_pattern, peft_name(config, module),
                                  config.lora_alpha, "alpha_pattern");
  const auto rank = static_cast<double>(rank_of(config, module));
  return alpha / (config.use_rslora ? std::sqrt(rank) : rank);
}

namespace {

using files::DType;
using files::printable;
using files::show_shape;

at::ScalarType type_of(DType type) {
  return type == DType::BF16 ? at::kBFloat16 : type == DType::F16 ? at::kHalf : at::kFloat;
}

void check_finite(const at::Tensor& value, const std::string& name, const std::string& where) {
  if (!at::isfinite(value).all().item<bool>())
    throw UserError(
        "{}: tensor {} holds NaN or infinite numbers; its training diverged, use an earlier "
        "checkpoint",
        where, printable(name));
}

void check_matrices(const std::string& module, const ModuleAdapter& parts,
                    const AdapterConfig& config, const std::string& where) {
  const std::string shown = printable(module);
  for (const auto& [name, matrix] : {std::pair("lora_A", &parts.a), std::pair("lora_B", &parts.b)})
    if (!matrix->defined())
      throw UserError("{}: {}.{} is missing; the file is incomplete, save or fetch it again", where,
                      shown, name);
  const std::string a = show_shape(parts.a.sizes()), b = show_shape(parts.b.sizes());
  if (parts.a.dim() != 2 || parts.b.dim() != 2 || parts.a.size(0) != parts.b.size(1) ||
      parts.a.numel() == 0 || parts.b.numel() == 0)
    throw UserError(
        "{}: {}: lora_A is {} and lora_B is {}; they must be (rank, inputs) and (outputs, rank)",
        where, shown, a, b);
  const int64_t rank = rank_of(config, module);
  if (parts.rank() != rank)
    throw UserError(
        "{}: {}: lora_A is {}, of rank {}, but the configuration says rank {}; configuration and "
        "weights do not belong together",
        where, shown, a, parts.rank(), rank);
}

void check_magnitude(const std::string& module, ModuleAdapter& parts, const AdapterConfig& config,
                     const std::string& where) {
  const std::string shown = printable(module);
  const bool present = parts.magnitude.defined();
  if (config.use_dora && !present)
    throw UserError("{}: {}.lora_magnitude_vector is missing, but \"use_dora\" requires it", where,
                    shown);
  if (!config.use_dora && present)
    throw UserError(
        "{}: there is a {}.lora_magnitude_vector, but the configuration does not set \"use_dora\"; "
        "configuration and weights do not belong together",
        where, shown);
  if (!present) return;
  if (parts.magnitude.numel() != parts.out_features())
    throw UserError("{}: {}.lora_magnitude_vector is {}; it must be {}", where, shown,
                    show_shape(parts.magnitude.sizes()),
                    show_shape(std::vector<int64_t>{parts.out_features()}));
  parts.magnitude = parts.magnitude.flatten();
}

}  // namespace

at::Tensor read_adapter_tensor(const files::TensorSource& source, const files::TensorInfo& info) {
  if (!files::is_floating(info.dtype) || files::is_quantized(info.dtype))
    throw UserError("{}: tensor {} has type {}; it must be floating-point", source.label(),
                    printable(info.name), files::name(info.dtype));
  const DType stored = info.dtype == DType::F64 ? DType::F32 : info.dtype;
  at::Tensor value = at::empty(info.shape, at::TensorOptions().dtype(type_of(stored)));
  source.read(info, stored, value.mutable_data_ptr());
  source.release(info);
  check_finite(value, info.name, source.label());
  return value;
}

void check_and_scale(Adapter& adapter, const std::string& where) {
  if (adapter.modules.empty()) throw UserError("{} holds no adapter", where);
  for (auto& [module, parts] : adapter.modules) {
    check_matrices(module, parts, adapter.config, where);
    check_magnitude(module, parts, adapter.config, where);
    if (!adapts(adapter.config, module))
      throw UserError(
          "{}: {} has an adapter that the configuration's target_modules do not name; "
          "configuration "
          "and weights do not belong together",
          where, printable(module));
    parts.scaling = scaling_of(adapter.config, module);
  }
}

}  // namespace snug::checkpoint
