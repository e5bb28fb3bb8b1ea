// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "base/error.h"
#include "models/config_fields.h"
#include "models/decoder/config/parts.h"
#include "models/decoder/config/rope.h"

namespace snug::models::decoder {
namespace {

using nlohmann::json;

// The layers that have Mamba 2: "mamba" or, since transformers 5, "linear_attention", which the
// config's own version reads.
void name_mamba_layers(Config& c, const std::string& where) {
  const ConfigFields fields(c.json, where);
  json types = c.json["layer_types"];
  if (types.is_null()) types = c.json["layers_block_type"];
  if (types.is_null())
    types = std::vector<std::string>(static_cast<size_t>(c.num_hidden_layers), kMamba);
  if (types.is_array()) {
    c.other_layers = std::ranges::find(types, kMamba) == types.end() ? kDeltaRule : kMamba;
    for (json& type : types)
      if (type == "attention") type = kFull;
  }
  c.json["layer_types"] = std::move(types);
  c.json.erase("layers_block_type");
}

// Limits of the time step. JSON has no infinity, for which transformers writes an object; it takes
// no null for the pair.
void read_step_limits(Config& c, const std::string& where) {
  const json limits = c.json["time_step_limit"];
  if (limits.is_null()) {
    c.json.erase("time_step_limit");
    return;
  }
  if (!limits.is_array() || limits.size() != 2 || !limits[0].is_number())
    throw UserError("{}: \"time_step_limit\" is not two numbers, the least and the most", where);
  c.least_step = limits[0].get<double>();
  if (limits[1].is_number()) c.most_step = limits[1].get<double>();
  if (!(c.least_step >= 0) || !(c.most_step >= c.least_step))
    throw UserError("{}: time_step_limit = {} to {}; the time step is 0 or more", where,
                    c.least_step, c.most_step);
}

}  // namespace

// Keys and values made from a latent vector (DeepSeek-AI 2024, "DeepSeek-V2", section 2.1): the
// last elements of each query and key rotate, and values may have fewer.
void read_latent_attention(Config& c, const std::string& where) {
  const ConfigFields fields(c.json, where);
  if (!c.json.contains("kv_lora_rank")) return;
  constexpr int64_t kMost = int64_t{1} << 20;
  if (fields.has("q_lora_rank")) c.query_rank = fields.integer_between("q_lora_rank", 1, kMost);
  c.latent_rank = fields.integer_between("kv_lora_rank", 1, kMost);
  c.rotated.first = fields.integer_between("qk_nope_head_dim", 1, 256);
  c.rotated.dim = fields.integer_between("qk_rope_head_dim", 1, 256);
  c.json["head_dim"] = c.rotated.first + c.rotated.dim;
  c.value_dim = fields.integer_between("v_head_dim", 1, c.rotated.first + c.rotated.dim);
  if (c.num_key_value_heads != c.num_attention_heads)
    throw UserError("{}: num_key_value_heads = {}: each of the {} heads of a {} model has its own",
                    where, c.num_key_value_heads, c.num_attention_heads, c.family->model_type);
}

// Short convolutions, of all layers but those that the older key names; both keys are written.
void read_convolutions(Config& c, const std::string& where) {
  const ConfigFields fields(c.json, where);
  if (!c.json.contains("conv_L_cache")) return;
  c.other_layers = kConvolution;
  c.conv_taps = fields.integer_between("conv_L_cache", 1, kernels::kMostTaps);
  c.conv_bias = fields.boolean("conv_bias", false);
  if (!fields.has("layer_types") && fields.has("full_attn_idxs")) {
    json types(std::vector<std::string>(static_cast<size_t>(c.num_hidden_layers), kConvolution));
    for (const int64_t layer : fields.ids("full_attn_idxs")) {
      if (layer < 0 || layer >= c.num_hidden_layers)
        throw UserError("{}: \"full_attn_idxs\" names layer {} of {}", where, layer,
                        c.num_hidden_layers);
      types[static_cast<size_t>(layer)] = kFull;
    }
    c.json["layer_types"] = std::move(types);
  }
}

// The gated delta rule, in all layers but each fourth.
void read_delta_rule(Config& c, const std::string& where) {
  const ConfigFields fields(c.json, where);
  if (!c.json.contains("linear_num_key_heads")) return;
  c.other_layers = kDeltaRule;
  c.conv_taps = fields.integer_between("linear_conv_kernel_dim", 1, kernels::kMostTaps);
  c.delta_key_heads = fields.integer_between("linear_num_key_heads", 1, 4096);
  c.delta_value_heads = fields.integer_between("linear_num_value_heads", 1, 4096);
  c.delta_key_dim = fields.integer_between("linear_key_head_dim", 1, 256);
  c.delta_value_dim = fields.integer_between("linear_value_head_dim", 1, 256);
  if (c.delta_value_heads % c.delta_key_heads != 0)
    throw UserError("{}: linear_num_value_heads = {} is no multiple of linear_num_key_heads = {}",
                    where, c.delta_value_heads, c.delta_key_heads);
  if (c.activation != ops::Activation::Silu)
    throw UserError("{}: the convolutions of a {} model have the activation silu, not \"{}\"",
                    where, c.family->model_type, fields.text("hidden_act"));
  const int64_t interval = fields.integer_between("full_attention_interval", 1, 4096);
  if (!fields.has("layer_types")) {
    c.json["layer_types"] = json::array();
    for (int64_t layer = 1; layer <= c.num_hidden_layers; ++layer)
      c.json["layer_types"].push_back(layer % interval == 0 ? kFull : kDeltaRule);
  }
}

// Mamba 2, in the layers that the config names.
void read_mamba(Config& c, const std::string& where) {
  const ConfigFields fields(c.json, where);
  if (!c.json.contains("mamba_n_heads")) return;
  c.expert_size = c.intermediate_size;
  c.intermediate_size = fields.integer_between("shared_intermediate_size", 1, kLargestMlp);
  c.conv_taps = fields.integer_between("mamba_d_conv", 1, kernels::kMostTaps);
  c.conv_bias = fields.boolean("mamba_conv_bias", true);
  c.mamba_bias = fields.boolean("mamba_proj_bias", false);
  c.mamba_heads = fields.integer_between("mamba_n_heads", 1, 4096);
  c.mamba_groups = fields.integer_between("mamba_n_groups", 1, 4096);
  c.mamba_state = fields.integer_between("mamba_d_state", 1, 256);
  const int64_t inner = fields.integer_between("mamba_expand", 1, 64) * c.hidden_size;
  if (c.json["mamba_d_head"] == "auto") c.json["mamba_d_head"] = inner / c.mamba_heads;
  c.mamba_head_dim = fields.integer_between("mamba_d_head", 1, 1024);
  if (c.mamba_heads % c.mamba_groups != 0 || c.mamba_heads * c.mamba_head_dim != inner)
    throw UserError(
        "{}: {} heads of {} (mamba_n_heads, mamba_d_head) in {} groups (mamba_n_groups) do not "
        "make mamba_expand * hidden_size = {} features of groups of one size",
        where, c.mamba_heads, c.mamba_head_dim, c.mamba_groups, inner);
  if (c.activation != ops::Activation::Silu)
    throw UserError("{}: the convolutions of a {} model have the activation silu, not \"{}\"",
                    where, c.family->model_type, fields.text("hidden_act"));
  read_step_limits(c, where);
  name_mamba_layers(c, where);
}

}  // namespace snug::models::decoder
