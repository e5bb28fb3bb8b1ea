// SPDX-License-Identifier: Apache-2.0
#include "files/weights/packed/join.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "files/weights/byte_reader.h"
#include "files/weights/packed/layouts.h"

namespace snug::files {
namespace {

using Json = nlohmann::json;

// What follows a module's name; "weight.absmax" before "absmax", which there is not.
constexpr std::array kParts = {
    "weight.absmax",
    "weight.nested_absmax",
    "weight.nested_quant_map",
    "weight.quant_map",
    "weight_format",
    "SCB",
    "weight",
    "qweight",
    "qzeros",
    "scales",
    "g_idx",
    "weight_packed",
    "weight_scale",
    "weight_scale_inv",
    "weight_scale_2",
    "weight_global_scale",
    "weight_zero_point",
    "weight_shape",
    "weight_g_idx",
    "input_scale",
    "input_global_scale",
    "input_zero_point",
    "output_scale",
    "output_zero_point",
    "pre_quant_scale",
};
constexpr std::string_view kState = "weight.quant_state.bitsandbytes__";
// gpt-oss' experts, which are no modules: "experts.down_proj_blocks".
constexpr std::array kOfBlocks = {"blocks", "scales"};
// Scales of activations, keys and values that another program would round to fewer bits.
constexpr std::array kOfActivations = {"k_scale",    "v_scale",     "kv_scale",    "q_scale",
                                       "prob_scale", "input_scale", "output_scale"};

struct Split {
  std::string module, part;
};

std::optional<Split> split(const std::string& name) {
  if (const size_t at = name.find(kState); at != std::string::npos && at > 0 && name[at - 1] == '.')
    return Split{name.substr(0, at - 1), name.substr(at)};
  for (const std::string_view part : kParts)
    if (name.size() > part.size() + 1 && name.ends_with(part) &&
        name[name.size() - part.size() - 1] == '.')
      return Split{name.substr(0, name.size() - part.size() - 1), std::string(part)};
  for (const std::string_view part : kOfBlocks)
    if (name.size() > part.size() + 1 && name.ends_with(part) &&
        name[name.size() - part.size() - 1] == '_')
      return Split{name.substr(0, name.size() - part.size() - 1), std::string(part)};
  return std::nullopt;
}

std::string text_in(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

const Json* quantization_of(const Json& config) {
  const auto own = config.is_object() ? config.find("quantization_config") : config.end();
  return own != config.end() && own->is_object() ? &*own : nullptr;
}

int64_t number_in(const Json& value) {
  constexpr int64_t kMost = int64_t{1} << 30;
  return value.is_number_integer() && value > 0 && value < kMost ? value.get<int64_t>() : 0;
}

void take_block(const Json& object, const char* key, PackingOptions& options) {
  const auto block = object.find(key);
  if (block == object.end() || !block->is_array() || block->size() != 2) return;
  for (size_t i = 0; i < 2; ++i) options.block[i] = number_in((*block)[i]);
}

// Sizes of blocks and groups are there for the last ones, which may be smaller: those of
// compressed-tensors by groups of layers, which have the same where all is one.
PackingOptions options_of(const Json& config) {
  PackingOptions options;
  for (const char* key : {"dtype", "torch_dtype"}) {
    const std::string type = text_in(config, key);
    if (type == "float16") options.dtype = DType::F16;
    if (type == "float32") options.dtype = DType::F32;
  }
  const Json* own = quantization_of(config);
  if (own == nullptr) return options;
  // AutoRound's own kernels take zero points as they are, those of AutoGPTQ add 1.
  const std::string packing = text_in(*own, "packing_format");
  const auto symmetric = own->find("sym");
  const bool is_plain = packing.find("gptqmodel") != std::string::npos ||
                        (packing == "auto_round" && symmetric != own->end() && *symmetric == false);
  options.zeros_less_one = text_in(*own, "checkpoint_format") != "gptq_v2" && !is_plain;
  if (const auto group = own->find("group_size"); group != own->end())
    options.group = number_in(*group);
  if (text_in(*own, "quant_method") == "fp8") options.block = {128, 128};  // transformers' default
  take_block(*own, "weight_block_size", options);
  const auto groups = own->find("config_groups");
  if (groups == own->end() || !groups->is_object()) return options;
  for (const Json& group : *groups) {
    const auto weights = group.is_object() ? group.find("weights") : group.end();
    if (!group.is_object() || weights == group.end() || !weights->is_object()) continue;
    if (const auto size = weights->find("group_size"); size != weights->end())
      options.group = number_in(*size);
    take_block(*weights, "block_structure", options);
  }
  return options;
}

// The layout that these parts are, by what there is and its types; nothing for others' and for
// weights in floating point.
std::optional<Unpacked> unpack(const ModuleParts& parts, const PackingOptions& options) {
  const auto type_of = [&](const char* part) -> std::optional<DType> {
    const PackedPart* found = parts.find(part);
    return found == nullptr ? std::nullopt : std::optional(found->info.dtype);
  };
  const auto has = [&](const char* part) { return parts.find(part) != nullptr; };
  if (has("pre_quant_scale"))
    throw UserError("its pre_quant_scale is a factor of the inputs, which snug does not read");
  if (has("blocks") && has("scales")) return unpack_fp4(parts, options);
  const bool has_state = std::ranges::any_of(
      parts.all(), [](const auto& part) { return part.first.starts_with("weight."); });
  if (has_state) return unpack_bits_and_bytes_4(parts);
  if (has("SCB") && type_of("weight") == DType::I8) return unpack_bits_and_bytes_8(parts, options);
  if (has("qweight")) {
    const PackedPart &codes = parts["qweight"], &scales = parts["scales"];
    const bool along_inputs = codes.row_elements() == scales.row_elements();
    return along_inputs ? unpack_gptq(parts, options) : unpack_awq(parts, options);
  }
  if (type_of("weight_packed") == DType::U8 ||
      (type_of("weight") == DType::U8 && has("weight_scale")))
    return unpack_fp4(parts, options);
  if (has("weight_packed")) return unpack_packed_integers(parts, options);
  const bool is_scaled = has("weight_scale") || has("weight_scale_inv");
  const auto of_weight = type_of("weight");
  const bool has_codes =
      of_weight == DType::I8 || of_weight == DType::F8E4M3 || of_weight == DType::F8E5M2;
  if (is_scaled && has_codes) return unpack_scaled(parts, options);
  return std::nullopt;
}

// Programs and formats whose tensors are not what their names say elsewhere are not guessed at.
bool is_known(const Json& config) {
  static constexpr std::array<std::string_view, 12> kMethods = {
      "",      "bitsandbytes", "gptq",     "awq",        "compressed-tensors", "fp8",
      "mxfp4", "fbgemm_fp8",   "modelopt", "auto-round", "autoround",          "intel/auto-round"};
  static constexpr std::array<std::string_view, 13> kFormats = {"",
                                                                "gptq",
                                                                "gptq_v2",
                                                                "gemm",
                                                                "pack-quantized",
                                                                "int-quantized",
                                                                "float-quantized",
                                                                "naive-quantized",
                                                                "nvfp4-pack-quantized",
                                                                "mxfp4-pack-quantized",
                                                                "mxfp8-quantized",
                                                                "mixed-precision",
                                                                "dense"};
  const Json* own = quantization_of(config);
  if (own == nullptr) return true;
  const auto is_in = [](const auto& all, const std::string& word) {
    return std::ranges::find(all, word) != all.end();
  };
  return is_in(kMethods, text_in(*own, "quant_method")) &&
         is_in(kFormats, text_in(*own, "format")) &&
         is_in(kFormats, text_in(*own, "checkpoint_format"));
}

}  // namespace

void join_packed_weights(TensorSource& tensors, const Json& config) {
  if (!is_known(config)) return;
  std::map<std::string, ModuleParts> modules;
  std::set<std::string> dropped;
  for (const TensorInfo& tensor : tensors.tensors()) {
    const auto name = split(tensor.name);
    if (name) modules[name->module].add(name->part, tensors.part(tensor));
    const size_t dot = tensor.name.rfind('.');
    if (dot != std::string::npos &&
        std::ranges::find(kOfActivations, std::string_view(tensor.name).substr(dot + 1)) !=
            kOfActivations.end())
      dropped.insert(tensor.name);
  }
  const PackingOptions options = options_of(config);
  std::vector<JoinedTensor> joined;
  for (const auto& [module, parts] : modules) {
    std::optional<Unpacked> unpacked =
        with_context(fmt::format("{}: packed weight of \"{}\"", tensors.label(), printable(module)),
                     [&, &parts = parts] { return unpack(parts, options); });
    if (!unpacked) continue;
    const std::string name = parts.find("blocks") != nullptr ? module : module + ".weight";
    JoinedTensor one{.info = make_tensor_info(name, unpacked->dtype, unpacked->shape),
                     .parts = {},
                     .values = std::move(unpacked->values)};
    for (const auto& [_, part] : parts.all()) one.parts.push_back(part.info.name);
    // The codes first: errors, read-ahead and comparisons go by them.
    std::ranges::stable_sort(one.parts, std::greater(),
                             [&](const std::string& part) { return tensors.find(part)->nbytes; });
    joined.push_back(std::move(one));
  }
  if (!joined.empty() || !dropped.empty()) tensors.join(std::move(joined), dropped);
}

}  // namespace snug::files
