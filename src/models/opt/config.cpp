// SPDX-License-Identifier: Apache-2.0
#include "models/opt/config.h"

#include "base/error.h"
#include "base/log.h"
#include "models/config_fields.h"

namespace snug::models::opt {

using nlohmann::json;

Config from_hugging_face(const json& root, const std::string& where) {
  const ConfigFields fields(root, where);
  Config c;
  c.vocab_size = fields.integer_between("vocab_size", 1, int64_t{1} << 24, 50272);
  c.hidden_size = fields.integer_between("hidden_size", 1, int64_t{1} << 20, 768);
  c.word_embed_proj_dim =
      fields.integer_between("word_embed_proj_dim", 1, int64_t{1} << 20, c.hidden_size);
  c.ffn_dim = fields.integer_between("ffn_dim", 1, int64_t{1} << 22, 3072);
  c.num_hidden_layers = fields.integer_between("num_hidden_layers", 1, 4096, 12);
  c.num_attention_heads = fields.integer_between("num_attention_heads", 1, 4096, 12);
  c.max_position_embeddings =
      fields.integer_between("max_position_embeddings", 1, int64_t{1} << 24, 2048);
  c.do_layer_norm_before = fields.boolean("do_layer_norm_before", true);
  c.remove_final_layer_norm = fields.boolean("_remove_final_layer_norm", false);
  c.enable_bias = fields.boolean("enable_bias", true);
  c.tie_word_embeddings = fields.boolean("tie_word_embeddings", true);
  c.activation_function = fields.text("activation_function", "relu");
  c.activation = ops::activation_of(c.activation_function, where + ": activation_function");
  c.dropout = fields.probability("dropout", 0.1);
  c.attention_dropout = fields.probability("attention_dropout", 0.0);
  c.init_std = fields.number("init_std", 0.02);
  c.bos_token_ids =
      fields.has("bos_token_id") ? fields.ids("bos_token_id") : std::vector<int64_t>{2};
  c.eos_token_ids =
      fields.has("eos_token_id") ? fields.ids("eos_token_id") : std::vector<int64_t>{2};
  c.pad_token_id = fields.integer("pad_token_id", 1);
  if (c.hidden_size % c.num_attention_heads != 0)
    throw UserError("{}: {} attention heads cannot share a hidden_size of {} evenly", where,
                    c.num_attention_heads, c.hidden_size);
  if (c.head_dim() > 256)
    throw UserError(
        "{}: hidden_size = {} gives each of {} attention heads {} features; at most 256 are "
        "supported",
        where, c.hidden_size, c.num_attention_heads, c.head_dim());
  if (!fields.boolean("layer_norm_elementwise_affine", true))
    throw UserError(
        "{}: layer_norm_elementwise_affine = false is not supported: layer norms have a weight and "
        "a bias here",
        where);
  if (const double share = fields.number("layerdrop", 0.0); share > 0)
    warn("OPT's layerdrop = {} is not applied: every layer runs in every step", share);
  return c;
}

json to_hugging_face(const Config& c) {
  return {{"architectures", {"OPTForCausalLM"}},
          {"model_type", "opt"},
          {"vocab_size", c.vocab_size},
          {"hidden_size", c.hidden_size},
          {"word_embed_proj_dim", c.word_embed_proj_dim},
          {"ffn_dim", c.ffn_dim},
          {"num_hidden_layers", c.num_hidden_layers},
          {"num_attention_heads", c.num_attention_heads},
          {"max_position_embeddings", c.max_position_embeddings},
          {"do_layer_norm_before", c.do_layer_norm_before},
          {"_remove_final_layer_norm", c.remove_final_layer_norm},
          {"enable_bias", c.enable_bias},
          {"layer_norm_elementwise_affine", true},
          {"tie_word_embeddings", c.tie_word_embeddings},
          {"activation_function", c.activation_function},
          {"dropout", c.dropout},
          {"attention_dropout", c.attention_dropout},
          {"layerdrop", 0.0},
          {"init_std", c.init_std},
          {"use_cache", true},
          {"bos_token_id", ids_or_number(c.bos_token_ids)},
          {"eos_token_id", ids_or_number(c.eos_token_ids)},
          {"pad_token_id", c.pad_token_id}};
}

}  // namespace snug::models::opt
