// config.json, read: laid over the family's defaults, brought to one form, then into numbers.
// SPDX-License-Identifier: Apache-2.0
#include "models/decoder/config.h"

#include <fmt/ranges.h>

#include <array>
#include <cmath>

#include "base/error.h"
#include "base/text.h"
#include "models/config_fields.h"
#include "models/decoder/config/parts.h"
#include "models/decoder/config/rope.h"
#include "models/score_head.h"

namespace snug::models::decoder {
namespace {

using nlohmann::json;

// Names that some families have for what others call otherwise.
constexpr std::array<std::pair<const char*, const char*>, 11> kAliases = {{
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
    {"top_k_experts", "num_experts_per_tok"},
}};

// Names that a family had for its own before: transformers reads both and writes the latter.
constexpr std::array<std::pair<const char*, const char*>, 2> kFormerNames = {{
    {"block_ff_dim", "intermediate_size"},
    {"tie_embedding", "tie_word_embeddings"},
}};

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

// The MLP's size as LFM2's config means it: two thirds of what it says, rounded up.
int64_t adjusted_size(const ConfigFields& fields, int64_t size) {
  if (!fields.boolean("block_auto_adjust_ff_dim", false)) return size;
  size = 2 * size / 3;
  if (!fields.has("block_ffn_dim_multiplier")) return size;
  const double product = fields.positive("block_ffn_dim_multiplier") * static_cast<double>(size);
  if (product > kLargestMlp)
    throw UserError("{}: block_ffn_dim_multiplier makes MLPs of {:.3g} features; at most {} are",
                    fields.where(), product, kLargestMlp);
  size = static_cast<int64_t>(product);
  const int64_t multiple = fields.integer_between("block_multiple_of", 1, 1 << 20);
  return (size + multiple - 1) / multiple * multiple;
}

void read_sizes(Config& c, const std::string& where) {
  const ConfigFields fields(c.json, where);
  c.vocab_size = fields.integer_between("vocab_size", 1, int64_t{1} << 24);
  c.hidden_size = fields.integer_between("hidden_size", 1, int64_t{1} << 20);
  std::optional<int64_t> usual_intermediate_size;
  if (c.json.contains("ffn_hidden_size")) usual_intermediate_size = 4 * c.hidden_size;
  // A model whose every block has experts need not say how large an MLP would be.
  if (fields.has("moe_intermediate_size") && !c.json.contains("mlp_only_layers"))
    usual_intermediate_size = fields.integer("moe_intermediate_size");
  c.intermediate_size =
      fields.integer_between("intermediate_size", 1, kLargestMlp, usual_intermediate_size);
  c.num_hidden_layers = fields.integer_between("num_hidden_layers", 1, 4096);
  c.num_attention_heads = fields.integer_between("num_attention_heads", 1, 4096);
  c.num_key_value_heads = fields.integer_between("num_key_value_heads", 1, c.num_attention_heads,
                                                 c.num_attention_heads);
  read_latent_attention(c, where);
  c.head_dim =
      fields.integer_between("head_dim", 1, kLargestHead, c.hidden_size / c.num_attention_heads);
  c.max_position_embeddings =
      fields.integer_between("max_position_embeddings", 1, int64_t{1} << 26);
  const bool may_share = c.json.contains("num_kv_heads");
  if (c.family->interleaved && ((c.num_key_value_heads != c.num_attention_heads && !may_share) ||
                                c.head_dim * c.num_attention_heads != c.hidden_size))
    throw UserError("{}: the heads of a {} model have no {}head_dim of their own", where,
                    c.family->model_type, may_share ? "" : "num_key_value_heads or ");
  c.rotated.pairs = c.family->rope_pairs;
  if (!fields.boolean("rope_interleave", true)) c.rotated.pairs = kernels::RopePairs::Halves;
  // As MiniMax-M2's files say it.
  if (fields.has("rotary_dim") && fields.number("partial_rotary_factor", 1.0) == 1)
    c.json["partial_rotary_factor"] =
        static_cast<double>(fields.integer("rotary_dim")) / static_cast<double>(c.head_dim);
  c.json.erase("rotary_dim");
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

void read_constants(Config& c, const std::string& where) {
  const ConfigFields fields(c.json, where);
  c.rms_norm_eps = fields.number("rms_norm_eps");
  if (!(c.rms_norm_eps > 0) || !(c.rms_norm_eps < 1))
    throw UserError("{}: rms_norm_eps = {} is out of range (0 to 1)", where, c.rms_norm_eps);
  c.embedding_scale = c.family->scaled_embedding ? std::sqrt(static_cast<double>(c.hidden_size))
                                                 : fields.positive("embedding_multiplier", 1.0);
  c.residual_scale = fields.positive("residual_multiplier", 1.0);
  c.logit_form.scale = 1 / fields.positive("logits_scaling", 1.0);
  const double scalar = fields.positive("query_pre_attn_scalar", static_cast<double>(c.head_dim));
  c.attention_scale = fields.positive("attention_multiplier", 1 / std::sqrt(scalar));
  if (fields.has("attn_logit_softcapping")) c.score_cap = fields.positive("attn_logit_softcapping");
  if (fields.has("final_logit_softcapping"))
    c.logit_form.cap = fields.positive("final_logit_softcapping");
  if (c.family->attention_scale != 0) c.attention_scale = c.family->attention_scale;
  c.rope = rope_of(c.json, where);
  // Scores of latent attention grow with the scaling (Peng et al. 2023, "YaRN", section 3.4) too.
  if (c.latent_rank > 0 && c.rope.mscale_all_dim != 0 && c.rope.factor > 1)
    c.attention_scale *= std::pow(0.1 * c.rope.mscale_all_dim * std::log(c.rope.factor) + 1, 2);
  fields.positive("rope_theta");
  if (c.rope.query_beta != 0 && !c.family->scaled_queries)
    throw UserError("{}: rope_scaling: llama_4_scaling_beta is not supported for {}", where,
                    c.family->model_type);
  c.window_rope.base = fields.positive("rope_local_base_freq", c.rope.base);
  // Where rope_theta stands alone, transformers 5 takes its default for layers with a window.
  const json usual = default_config(*c.family)["rope_theta"];
  if (c.family->window_rope == WindowRope::Unscaled && c.rope.base != usual.get<double>())
    throw UserError(
        "{}: rope_theta = {} of an {} model is not supported: versions of transformers disagree on "
        "layers with a sliding window unless it is {}",
        where, c.rope.base, c.family->model_type, usual.dump());
}

// Embeddings by layer.
void read_layer_inputs(Config& c, const std::string& where) {
  if (!c.json.contains("hidden_size_per_layer_input")) return;
  const ConfigFields fields(c.json, where);
  c.layer_input_size = fields.integer_between("hidden_size_per_layer_input", 0, 1 << 16, 0);
  if (c.layer_input_size == 0) return;
  c.layer_input_vocab = fields.integer_between("vocab_size_per_layer_input", 1, int64_t{1} << 24);
  if (c.layer_input_vocab < c.vocab_size)
    throw UserError(
        "{}: vocab_size_per_layer_input = {} leaves tokens of vocab_size = {} without an embedding",
        where, c.layer_input_vocab, c.vocab_size);
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
  c.norm_form = c.family->norm_form;
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
  read_layer_inputs(c, where);
  read_experts(c, where);
  c.labels = read_labels(file, where);
  write_labels(c.json, c.labels);
  // Where it is null, transformers 4 would compute with it.
  if (!fields.has("original_max_position_embeddings"))
    c.json.erase("original_max_position_embeddings");
  if (c.family->window_rope == WindowRope::ByLayer) write_rope_by_layer(c.json);
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
