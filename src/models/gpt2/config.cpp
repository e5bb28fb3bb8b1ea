// SPDX-License-Identifier: Apache-2.0
#include "models/gpt2/config.h"

#include "base/error.h"
#include "models/config_fields.h"

namespace snug::models::gpt2 {

using nlohmann::json;

namespace {

std::vector<int64_t> ids_or(const ConfigFields& fields, const char* key, int64_t fallback) {
  return fields.has(key) ? fields.ids(key) : std::vector<int64_t>{fallback};
}

}  // namespace

Config from_hugging_face(const json& root, const std::string& where) {
  const ConfigFields fields(root, where);
  Config c;
  c.vocab_size = fields.integer_between("vocab_size", 1, int64_t{1} << 24, 50257);
  c.n_positions = fields.integer_between("n_positions", 1, int64_t{1} << 24, 1024);
  c.n_embd = fields.integer_between("n_embd", 1, int64_t{1} << 20, 768);
  c.n_layer = fields.integer_between("n_layer", 1, 4096, 12);
  c.n_head = fields.integer_between("n_head", 1, 4096, 12);
  c.n_inner = fields.integer_between("n_inner", 1, int64_t{1} << 22, 4 * c.n_embd);
  c.activation_function = fields.text("activation_function", "gelu_new");
  c.activation = ops::activation_of(c.activation_function, where + ": activation_function");
  c.embd_pdrop = fields.probability("embd_pdrop", 0.1);
  c.attn_pdrop = fields.probability("attn_pdrop", 0.1);
  c.resid_pdrop = fields.probability("resid_pdrop", 0.1);
  c.layer_norm_epsilon = fields.number("layer_norm_epsilon", 1e-5);
  c.initializer_range = fields.number("initializer_range", 0.02);
  c.scale_attn_weights = fields.boolean("scale_attn_weights", true);
  c.scale_attn_by_inverse_layer_idx = fields.boolean("scale_attn_by_inverse_layer_idx", false);
  c.tie_word_embeddings = fields.boolean("tie_word_embeddings", true);
  c.bos_token_ids = ids_or(fields, "bos_token_id", 50256);
  c.eos_token_ids = ids_or(fields, "eos_token_id", 50256);
  c.pad_token_id = fields.integer("pad_token_id", -1);
  if (c.n_embd % c.n_head != 0)
    throw UserError("{}: n_head = {} attention heads cannot share n_embd = {} evenly", where,
                    c.n_head, c.n_embd);
  if (c.head_dim() > 256)
    throw UserError(
        "{}: n_embd = {} gives each of n_head = {} attention heads {} features; at most 256 are "
        "supported",
        where, c.n_embd, c.n_head, c.head_dim());
  if (fields.boolean("add_cross_attention", false))
    throw UserError("{}: add_cross_attention = true is not supported: GPT-2 is a decoder here",
                    where);
  return c;
}

json to_hugging_face(const Config& c) {
  json out{{"architectures", {"GPT2LMHeadModel"}},
           {"model_type", "gpt2"},
           {"vocab_size", c.vocab_size},
           {"n_positions", c.n_positions},
           {"n_embd", c.n_embd},
           {"n_layer", c.n_layer},
           {"n_head", c.n_head},
           {"n_inner", c.n_inner == 4 * c.n_embd ? json() : json(c.n_inner)},
           {"activation_function", c.activation_function},
           {"embd_pdrop", c.embd_pdrop},
           {"attn_pdrop", c.attn_pdrop},
           {"resid_pdrop", c.resid_pdrop},
           {"layer_norm_epsilon", c.layer_norm_epsilon},
           {"initializer_range", c.initializer_range},
           {"scale_attn_weights", c.scale_attn_weights},
           {"scale_attn_by_inverse_layer_idx", c.scale_attn_by_inverse_layer_idx},
           {"tie_word_embeddings", c.tie_word_embeddings},
           {"use_cache", true},
           {"bos_token_id", ids_or_number(c.bos_token_ids)},
           {"eos_token_id", ids_or_number(c.eos_token_ids)}};
  if (c.pad_token_id >= 0) out["pad_token_id"] = c.pad_token_id;
  return out;
}

}  // namespace snug::models::gpt2
