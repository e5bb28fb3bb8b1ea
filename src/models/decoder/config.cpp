// config.json, read: laid over the family's defaults, brought to one form, then into numbers.
// SPDX-License-Identifier: Apache-2.0
#include "models/decoder/config.h"

#include <fmt/ranges.h>

#include <array>
#include <cmath>

#include "base/error.h"
#include "base/text.h"
#include "models/config_fields.h"
#include "models/decoder/config_rope.h"
#include "models/score_head.h"

namespace snug::models::decoder {
namespace {

using nlohmann::json;

constexpr int64_t kLargestMlp = int64_t{1} << 22;

// Names that some families have for what others call otherwise.
constexpr std::array<std::pair<const char*, const char*>, 10> kAliases = {{
    {"layer_norm_eps", "rms_norm_eps"},
    {"layer_norm_epsilon", "rms_norm_eps"},
    {"norm_epsilon", "rms_norm_eps"},
    {"norm_eps", "rms_norm_eps"},
    {"rotary_pct", "partial_rotary_factor"},
    {"rotary_emb_base", "rope_theta"},
    {"activation", "hidden_act"},
    {"bias", "use_bias"},
    {"ffn_hidden_size", "intermediate_size"},
    {"parallel_attn", "use_parallel_residual"},
}};

// Names that a family had for its own before: transformers reads both and writes the latter.
constexpr std::array<std::pair<const char*, const char*>, 2> kFormerNames = {{
    {"block_ff_dim", "intermediate_size"},
    {"tie_embedding", "tie_word_embeddings"},
}};

// Values of topk_method and of mlp_layer_types.
constexpr const char* kGreedy = "greedy";
constexpr const char* kByGroups = "group_limited_greedy";
constexpr const char* kDense = "dense";
constexpr const char* kSparse = "sparse";

double positive(const ConfigFields& fields, const char* key, std::optional<double> fallback = {}) {
  const double value = fields.number(key, fallback);
  if (!std::isfinite(value) || value <= 0)
    throw UserError("{}: {} = {} must be positive", fields.where(), key, value);
  return value;
}

// What Falcon's flags say of a block's heads and norms.
void read_falcon(Config& c, const std::string& where) {
  if (!c.json.contains("new_decoder_architecture")) return;
  const ConfigFields fields(c.json, where);
  if (fields.boolean("alibi", false))
    throw UserError(
        "{}: alibi = true, as Falcon-RW has it, is not supported: attention here has no biases by "
        "distance; Falcon models with rotary embeddings (7B, 11B, 40B, 180B) are",
        where);
  if (c.attention_dropout != 0)
    throw UserError(
        "{}: attention_dropout = {} of a falcon model is not supported: what it drops depends on "
        "the kind of attention in transformers; set it to 0",
        where, c.attention_dropout);
  const bool grouped = fields.boolean("new_decoder_architecture", false);
  const bool multi_query = fields.boolean("multi_query", true);
  const int64_t norms = fields.integer_between("num_ln_in_parallel_attn", 1, 2, grouped ? 2 : 1);
  if (grouped ? !c.parallel_residual : c.parallel_residual && norms == 2)
    throw UserError(
        "{}: new_decoder_architecture = {}, parallel_attn = {} and num_ln_in_parallel_attn = {}: "
        "transformers has no such block; the new one is parallel, the other then has one norm",
        where, grouped, c.parallel_residual, norms);
  c.shared_norm = c.parallel_residual && norms == 1;
  c.json["num_key_value_heads"] = grouped ? c.json["num_kv_heads"] : multi_query ? json(1) : json();
}

// 1 for each layer that rotates.
std::vector<int64_t> rotating_layers(json& config, int64_t layers, const std::string& where) {
  std::vector<int64_t> rotates(static_cast<size_t>(layers), 1);
  const ConfigFields fields(config, where);
  if (config.contains("position_embedding_type") &&
      fields.text("position_embedding_type", "nope") != "rope")
    std::ranges::fill(rotates, 0);
  if (!config.contains("no_rope_layers")) return rotates;
  const int64_t interval = fields.integer_between("no_rope_layer_interval", 1, 1 << 20);
  for (int64_t layer = 0; layer < layers; ++layer)
    rotates[static_cast<size_t>(layer)] = (layer + 1) % interval != 0;
  if (fields.has("no_rope_layers")) rotates = fields.ids("no_rope_layers");
  if (std::ssize(rotates) < layers)
    throw UserError("{}: \"no_rope_layers\" has {} numbers for {} layers", where, rotates.size(),
                    layers);
  config["no_rope_layers"] = rotates;
  return rotates;
}

// Whether each layer has the sliding window: as layer_types lists it, or by the older keys.
std::vector<bool> sliding_layers(const Config& c, const std::vector<int64_t>& rotates,
                                 const std::string& where) {
  const json& config = c.json;
  const int64_t layers = c.num_hidden_layers;
  const ConfigFields fields(config, where);
  const bool has_window =
      fields.has("sliding_window") && fields.boolean("use_sliding_window", true);
  std::vector<bool> slides;
  if (fields.has("layer_types")) {
    const json& types = config["layer_types"];
    if (!types.is_array() || std::ssize(types) != layers)
      throw UserError("{}: \"layer_types\" is not a list of {} layers (num_hidden_layers)", where,
                      layers);
    for (const json& type : types) {
      const bool is_other = c.other_layers != nullptr && type == c.other_layers;
      if (type != kSliding && type != kFull && !is_other)
        throw UserError("{}: \"layer_types\" contains {}; supported are \"{}\"{} and \"{}\"", where,
                        type.dump(), kFull,
                        c.other_layers == nullptr ? "" : fmt::format(", \"{}\"", c.other_layers),
                        kSliding);
      if (type == kSliding && !has_window)
        throw UserError(
            "{}: \"layer_types\" contains \"{}\", but sliding_window is null or "
            "use_sliding_window false",
            where, kSliding);
      slides.push_back(type == kSliding);
    }
    return slides;
  }
  if (!has_window) return std::vector<bool>(static_cast<size_t>(layers), false);
  if (c.family->model_type == "qwen2_moe")
    throw UserError(
        "{}: use_sliding_window of a qwen2_moe model needs \"layer_types\": versions of "
        "transformers "
        "disagree on which layers have the window without it",
        where);
  // "LLLG": layers see the window (L) or all (G) in turn, and the last one sees all.
  if (config.contains("sliding_window_pattern") && config["sliding_window_pattern"].is_string()) {
    const auto letters = config["sliding_window_pattern"].get<std::string>();
    if (letters.empty() || letters.find_first_not_of("LG") != std::string::npos)
      throw UserError("{}: \"sliding_window_pattern\" is \"{}\"; letters are L and G", where,
                      printable(letters));
    for (int64_t layer = 0; layer < layers; ++layer)
      slides.push_back(layer + 1 < layers &&
                       letters[static_cast<size_t>(layer) % letters.size()] == 'L');
    return slides;
  }
  const int64_t pattern = fields.integer("sliding_window_pattern", c.family->window_pattern);
  const int64_t first = fields.integer("max_window_layers", 0);
  for (int64_t layer = 0; layer < layers; ++layer) {
    if (pattern > 0)
      slides.push_back((layer + 1) % pattern != 0);
    else if (config.contains("no_rope_layers"))
      slides.push_back(rotates[static_cast<size_t>(layer)] == 0);
    else
      slides.push_back(layer >= first);
  }
  return slides;
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

// Also writes both forms of the pattern, for every version of transformers.
void read_layers(Config& c, const std::string& where) {
  const ConfigFields fields(c.json, where);
  std::vector<int64_t> rotates = rotating_layers(c.json, c.num_hidden_layers, where);
  const std::vector<bool> slides = sliding_layers(c, rotates, where);
  if (c.family->window_rope == WindowRope::Alone && fields.has("sliding_window"))
    std::ranges::copy(slides, rotates.begin());
  else if (c.family->window_rope == WindowRope::Alone)
    c.json["sliding_window_pattern"] = 0;  // as transformers writes it
  const Rotation of_windows =
      fields.has("rope_local_base_freq") || c.family->window_rope == WindowRope::Unscaled
          ? Rotation::Window
          : Rotation::Model;
  const bool any_slides = std::ranges::find(slides, true) != slides.end();
  const int64_t window =
      any_slides ? fields.integer_between("sliding_window", 1, int64_t{1} << 40) : 0;
  json types = json::array();
  int64_t first_window = c.num_hidden_layers;
  for (size_t layer = slides.size(); layer-- > 0;)
    if (slides[layer]) first_window = static_cast<int64_t>(layer);
  const json given = c.json.value("layer_types", json());
  if (given.is_null()) c.other_layers = nullptr;
  json attending = json::array();
  for (size_t layer = 0; layer < slides.size(); ++layer) {
    const bool is_other = c.other_layers != nullptr && given[layer] == c.other_layers;
    if (!is_other) attending.push_back(layer);
    types.push_back(is_other ? c.other_layers : slides[layer] ? kSliding : kFull);
    c.layers.push_back({.mixer = !is_other               ? MixerKind::Attention
                                 : c.mamba_heads > 0     ? MixerKind::Mamba
                                 : c.delta_key_heads > 0 ? MixerKind::DeltaRule
                                                         : MixerKind::ShortConvolution,
                        .sliding_window = slides[layer] ? window : 0,
                        .rotation = rotates[layer] == 0 ? Rotation::None
                                    : slides[layer]     ? of_windows
                                                        : Rotation::Model});
    if (slides[layer]) c.sliding_window = window;
  }
  if (c.json.contains("layer_types")) c.json["layer_types"] = std::move(types);
  if (c.json.contains("full_attn_idxs")) c.json["full_attn_idxs"] = std::move(attending);
  if (c.json.contains("max_window_layers") && c.sliding_window > 0)
    c.json["max_window_layers"] = first_window;
  if (c.json.contains("use_sliding_window") && c.sliding_window == 0) {
    c.json["use_sliding_window"] = false;
    c.json["sliding_window"] = nullptr;
  }
}

// The MLP's size as LFM2's config means it: two thirds of what it says, rounded up.
int64_t adjusted_size(const ConfigFields& fields, int64_t size) {
  if (!fields.boolean("block_auto_adjust_ff_dim", false)) return size;
  size = 2 * size / 3;
  if (!fields.has("block_ffn_dim_multiplier")) return size;
  const double product = positive(fields, "block_ffn_dim_multiplier") * static_cast<double>(size);
  if (product > kLargestMlp)
    throw UserError("{}: block_ffn_dim_multiplier makes MLPs of {:.3g} features; at most {} are",
                    fields.where(), product, kLargestMlp);
  size = static_cast<int64_t>(product);
  const int64_t multiple = fields.integer_between("block_multiple_of", 1, 1 << 20);
  return (size + multiple - 1) / multiple * multiple;
}

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

void read_sizes(Config& c, const std::string& where) {
  const ConfigFields fields(c.json, where);
  c.vocab_size = fields.integer_between("vocab_size", 1, int64_t{1} << 24);
  c.hidden_size = fields.integer_between("hidden_size", 1, int64_t{1} << 20);
  std::optional<int64_t> usual_intermediate_size;
  if (c.json.contains("ffn_hidden_size")) usual_intermediate_size = 4 * c.hidden_size;
  // A model whose every block has experts need not say how large an MLP would be.
  if (c.json.contains("moe_intermediate_size") && !c.json.contains("mlp_only_layers"))
    usual_intermediate_size = fields.integer("moe_intermediate_size");
  c.intermediate_size =
      fields.integer_between("intermediate_size", 1, kLargestMlp, usual_intermediate_size);
  c.num_hidden_layers = fields.integer_between("num_hidden_layers", 1, 4096);
  c.num_attention_heads = fields.integer_between("num_attention_heads", 1, 4096);
  c.num_key_value_heads = fields.integer_between("num_key_value_heads", 1, c.num_attention_heads,
                                                 c.num_attention_heads);
  read_latent_attention(c, where);
  c.head_dim = fields.integer_between("head_dim", 1, 256, c.hidden_size / c.num_attention_heads);
  c.max_position_embeddings =
      fields.integer_between("max_position_embeddings", 1, int64_t{1} << 26);
  const bool may_share = c.json.contains("num_kv_heads");
  if (c.family->interleaved && ((c.num_key_value_heads != c.num_attention_heads && !may_share) ||
                                c.head_dim * c.num_attention_heads != c.hidden_size))
    throw UserError("{}: the heads of a {} model have no {}head_dim of their own", where,
                    c.family->model_type, may_share ? "" : "num_key_value_heads or ");
  c.rotated.pairs = c.family->rope_pairs;
  if (!fields.boolean("rope_interleave", true)) c.rotated.pairs = kernels::RopePairs::Halves;
  if (c.latent_rank == 0)
    c.rotated.dim = static_cast<int64_t>(static_cast<double>(c.head_dim) *
                                         fields.number("partial_rotary_factor", 1.0));
  c.json["intermediate_size"] = c.intermediate_size;
  c.intermediate_size = adjusted_size(fields, c.intermediate_size);
  c.json["num_key_value_heads"] = c.num_key_value_heads;
  c.json["head_dim"] = c.head_dim;
  if (c.num_attention_heads % c.num_key_value_heads != 0)
    throw UserError("{}: {} attention heads cannot share {} key-value heads evenly", where,
                    c.num_attention_heads, c.num_key_value_heads);
  const char* keys = c.latent_rank > 0 ? "qk_rope_head_dim" : "head_dim and partial_rotary_factor";
  if (c.rotated.dim < 2 || c.rotated.dim % 2 != 0)
    throw UserError("{}: by {} {} elements of a head rotate; rotary embeddings need pairs", where,
                    keys, c.rotated.dim);
  if (c.rotated.dim > c.head_dim)
    throw UserError("{}: by {} {} of {} elements of a head rotate", where, keys, c.rotated.dim,
                    c.head_dim);
}

// How a block chooses a token's experts.
void read_router(Config& c, const ConfigFields& fields) {
  ops::Router& router = c.router;
  router.k = fields.integer_between("num_experts_per_tok", 1, c.num_experts);
  router.normalized = fields.boolean("norm_topk_prob", true);
  router.scale = positive(fields, "routed_scaling_factor", 1.0);
  if (c.family->sigmoid_router) router.scores = ops::RouterScores::Sigmoid;
  router.epsilon = c.family->router_epsilon;
  c.router_bias = c.family->sigmoid_router && fields.boolean("use_expert_bias", true);
  const std::string method = fields.text("topk_method", kByGroups);
  if (method != kByGroups && method != kGreedy)
    throw UserError("{}: topk_method \"{}\" is unknown; known are \"{}\" and \"{}\"",
                    fields.where(), printable(method), kGreedy, kByGroups);
  if (c.json.contains("topk_method") && router.normalized)
    throw UserError(
        "{}: norm_topk_prob = true of a {} model is not supported: transformers computes as if it "
        "were false",
        fields.where(), c.family->model_type);
  if (!fields.has("n_group") || method == kGreedy) return;
  router.groups = fields.integer_between("n_group", 1, c.num_experts);
  router.chosen_groups = fields.integer_between("topk_group", 1, router.groups);
  router.best_of_group = c.router_bias ? 2 : 1;
  const int64_t of_a_group = c.num_experts / router.groups;
  if (c.num_experts % router.groups != 0)
    throw UserError("{}: {} experts do not make n_group = {} groups of one size", fields.where(),
                    c.num_experts, router.groups);
  if (of_a_group < router.best_of_group)
    throw UserError(
        "{}: n_group = {} makes groups of {} experts; they are compared by their best {}",
        fields.where(), router.groups, of_a_group, router.best_of_group);
  if (router.chosen_groups * of_a_group < router.k)
    throw UserError(
        "{}: num_experts_per_tok = {}, but topk_group = {} groups of {} experts have {} together",
        fields.where(), router.k, router.chosen_groups, of_a_group,
        router.chosen_groups * of_a_group);
}

// Which blocks have experts: those that a list says, or all but some.
void read_sparse_layers(Config& c, const std::string& where) {
  const ConfigFields fields(c.json, where);
  const std::vector<int64_t> dense = fields.ids("mlp_only_layers");
  const int64_t step = fields.integer_between("decoder_sparse_step", 1, 4096, 1);
  const int64_t first = fields.integer_between(
      c.json.contains("num_dense_layers") ? "num_dense_layers" : "first_k_dense_replace", 0, 4096,
      0);
  for (int64_t layer = 0; layer < c.num_hidden_layers; ++layer)
    c.layers[static_cast<size_t>(layer)].experts =
        layer >= first && (layer + 1) % step == 0 && std::ranges::find(dense, layer) == dense.end();
  if (!c.json.contains("mlp_layer_types")) return;
  if (!fields.has("mlp_layer_types")) {
    c.json["mlp_layer_types"] = json::array();
    for (const Layer& layer : c.layers)
      c.json["mlp_layer_types"].push_back(layer.experts ? kSparse : kDense);
  }
  const json& types = c.json["mlp_layer_types"];
  if (!types.is_array() || std::ssize(types) != c.num_hidden_layers ||
      !std::ranges::all_of(types,
                           [](const json& type) { return type == kDense || type == kSparse; }))
    throw UserError("{}: \"mlp_layer_types\" is not a list of {} layers, each \"{}\" or \"{}\"",
                    where, c.num_hidden_layers, kDense, kSparse);
  for (size_t layer = 0; layer < types.size(); ++layer)
    c.layers[layer].experts = types[layer] == kSparse;
}

// Which blocks have experts, and how many.
void read_experts(Config& c, const std::string& where) {
  const ConfigFields fields(c.json, where);
  if (!c.json.contains("num_experts_per_tok") || fields.integer("num_local_experts", 1) == 0)
    return;
  const char* count = fields.has("num_local_experts")       ? "num_local_experts"
                      : c.json.contains("n_routed_experts") ? "n_routed_experts"
                                                            : "num_experts";
  c.num_experts = fields.integer_between(count, 1, 1 << 16);
  // Each is an object of its own. The largest published models have some 25,000.
  constexpr int64_t kMostExperts = int64_t{1} << 16;
  if (c.num_experts * c.num_hidden_layers > kMostExperts)
    throw UserError("{}: {} layers of {} experts each are more than the {} that a model may have",
                    where, c.num_hidden_layers, c.num_experts, kMostExperts);
  read_router(c, fields);
  if (c.expert_size == 0)
    c.expert_size =
        fields.integer_between("moe_intermediate_size", 1, 1 << 22, c.intermediate_size);
  const double balance = fields.number("router_aux_loss_coef", 0.0);
  if (!std::isfinite(balance) || balance < 0)
    throw UserError("{}: router_aux_loss_coef = {} must be 0 or more", where, balance);
  if (fields.boolean("output_router_logits", false)) c.balance = balance;
  c.shares_expert = c.json.contains("shared_expert_intermediate_size");
  if (c.shares_expert)
    c.shared_expert_size =
        fields.integer_between("shared_expert_intermediate_size", 1, kLargestMlp);
  if (fields.has("n_shared_experts"))
    c.shared_expert_size = c.expert_size * fields.integer_between("n_shared_experts", 0, 1 << 10);
  if (c.family->biased_experts) {
    if (c.activation != ops::Activation::Silu)
      throw UserError("{}: the experts of a {} model have the activation silu, not \"{}\"", where,
                      c.family->model_type, fields.text("hidden_act"));
    c.expert_clamp = {.limit = static_cast<float>(positive(fields, "swiglu_limit")),
                      .alpha = static_cast<float>(positive(fields, "swiglu_alpha"))};
  }
  read_sparse_layers(c, where);
  // transformers 5 writes the other name too, which version 4 does not read.
  if (!c.json.contains("num_experts")) return;
  c.json["num_experts"] = c.num_experts;
  c.json.erase("num_local_experts");
}

void read_constants(Config& c, const std::string& where) {
  const ConfigFields fields(c.json, where);
  c.rms_norm_eps = fields.number("rms_norm_eps");
  if (!(c.rms_norm_eps > 0) || !(c.rms_norm_eps < 1))
    throw UserError("{}: rms_norm_eps = {} is out of range (0 to 1)", where, c.rms_norm_eps);
  c.embedding_scale = c.family->scaled_embedding ? std::sqrt(static_cast<double>(c.hidden_size))
                                                 : positive(fields, "embedding_multiplier", 1.0);
  c.residual_scale = positive(fields, "residual_multiplier", 1.0);
  c.logit_form.scale = 1 / positive(fields, "logits_scaling", 1.0);
  const double scalar = positive(fields, "query_pre_attn_scalar", static_cast<double>(c.head_dim));
  c.attention_scale = positive(fields, "attention_multiplier", 1 / std::sqrt(scalar));
  if (fields.has("attn_logit_softcapping"))
    c.score_cap = positive(fields, "attn_logit_softcapping");
  if (fields.has("final_logit_softcapping"))
    c.logit_form.cap = positive(fields, "final_logit_softcapping");
  c.rope = rope_of(c.json, where);
  // Scores of latent attention grow with the scaling (Peng et al. 2023, "YaRN", section 3.4) too.
  if (c.latent_rank > 0 && c.rope.mscale_all_dim != 0 && c.rope.factor > 1)
    c.attention_scale *= std::pow(0.1 * c.rope.mscale_all_dim * std::log(c.rope.factor) + 1, 2);
  positive(fields, "rope_theta");
  if (c.rope.query_beta != 0 && !c.family->scaled_queries)
    throw UserError("{}: rope_scaling: llama_4_scaling_beta is not supported for {}", where,
                    c.family->model_type);
  c.window_rope.base = positive(fields, "rope_local_base_freq", c.rope.base);
  // Where rope_theta stands alone, transformers 5 takes its default for layers with a window.
  const json usual = default_config(*c.family)["rope_theta"];
  if (c.family->window_rope == WindowRope::Unscaled && c.rope.base != usual.get<double>())
    throw UserError(
        "{}: rope_theta = {} of an {} model is not supported: versions of transformers disagree on "
        "layers with a sliding window unless it is {}",
        where, c.rope.base, c.family->model_type, usual.dump());
}

}  // namespace

Config read_config(const json& file, const std::string& where) {
  Config c;
  const std::string type = ConfigFields(file, where).text("model_type");
  c.family = find_family(type);
  SNUG_CHECK(c.family != nullptr, "{}: no decoder family {}", where, type);
  const std::vector<std::string> unknown = unknown_keys(*c.family, file);
  for (const std::string& key : unknown)
    if (const json usual = usual_values(*c.family, key); !usual.empty())
      throw UserError("{}: {} = {} is not supported for a {} model, only {}", where, key,
                      file[key].dump(), type, usual.back().dump());
  if (!unknown.empty())
    throw UserError(
        "{}: snug does not know {} of a {} model, which may change what it computes; if not, "
        "remove {} from the file",
        where, fmt::join(unknown, ", "), type, unknown.size() == 1 ? "it" : "them");
  c.json = default_config(*c.family);
  for (const auto& [key, value] : file.items())
    if (c.json.contains(key) && key != "architectures") c.json[key] = value;
  for (const auto& [former, name] : kFormerNames) {
    if (c.json.contains(former) && !c.json[former].is_null()) c.json[name] = c.json[former];
    c.json.erase(former);
  }
  for (const auto& [theirs, ours] : kAliases)
    if (c.json.contains(theirs)) c.json[ours] = c.json[theirs];
  flatten_rope(c, file, where);
  const ConfigFields fields(c.json, where);
  // Gemma's first files say gelu and mean its form with tanh.
  if (type == "gemma" && c.json["hidden_act"] == "gelu") c.json["hidden_act"] = "gelu_pytorch_tanh";
  const char* activation = fields.has("hidden_activation") ? "hidden_activation" : "hidden_act";
  c.activation = ops::activation_of(fields.text(activation), where + ": " + activation);
  if (c.family->unit_offset) c.norm_form = kernels::NormForm::Gemma;
  c.tie_word_embeddings = fields.boolean("tie_word_embeddings", false);
  c.initializer_range = fields.number("initializer_range");
  c.attention_dropout = fields.probability("attention_dropout", 0);
  c.residual_dropout = fields.probability("residual_dropout", 0);
  c.embedding_dropout = fields.probability("embedding_dropout", 0);
  const bool use_bias = fields.boolean("use_bias", false);
  const bool attention_bias = fields.boolean("attention_bias", false);
  c.output_bias = use_bias || (c.family->plain_output ? fields.boolean("attention_out_bias", false)
                                                      : attention_bias);
  c.qkv_bias = fields.boolean("qkv_bias", c.family->qkv_bias) || use_bias || attention_bias ||
               fields.boolean("use_qkv_bias", false);
  c.mlp_bias = c.family->mlp_bias || use_bias || fields.boolean("mlp_bias", false);
  c.parallel_residual = fields.boolean("use_parallel_residual", false);
  if (fields.boolean("use_qk_norm", true)) c.qk_norm = c.family->qk_norm;
  fields.ids("bos_token_id");
  c.eos_token_ids = fields.ids("eos_token_id");
  read_falcon(c, where);
  read_sizes(c, where);
  read_constants(c, where);
  read_convolutions(c, where);
  read_delta_rule(c, where);
  read_mamba(c, where);
  read_layers(c, where);
  read_experts(c, where);
  c.labels = read_labels(file, where);
  write_labels(c.json, c.labels);
  // Where it is null, transformers 4 would compute with it.
  if (!fields.has("original_max_position_embeddings"))
    c.json.erase("original_max_position_embeddings");
  // Latent attention has other keys for the parts of a head.
  if (c.latent_rank > 0) c.json.erase("head_dim");
  // Falcon's class has a property of this name, which it cannot set, and a key of its own for
  // heads.
  if (c.json.contains("num_kv_heads"))
    for (const char* key : {"head_dim", "num_key_value_heads"}) c.json.erase(key);
  for (const auto& [theirs, ours] : kAliases)
    if (c.json.contains(theirs)) {
      c.json[theirs] = c.json[ours];
      c.json.erase(ours);
    }
  return c;
}

}  // namespace snug::models::decoder
