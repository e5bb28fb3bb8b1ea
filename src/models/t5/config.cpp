// SPDX-License-Identifier: Apache-2.0
#include "models/t5/config.h"

#include "base/error.h"
#include "models/config_fields.h"
#include "models/unread_tensors.h"

namespace snug::models::t5 {
namespace {

using nlohmann::json;

void read_feed_forward(Config& c, const ConfigFields& fields) {
  const std::string gated = "gated-";
  c.feed_forward_proj = fields.text("feed_forward_proj", "relu");
  c.is_gated = c.feed_forward_proj.starts_with(gated);
  std::string name = c.is_gated ? c.feed_forward_proj.substr(gated.size()) : c.feed_forward_proj;
  if (c.is_gated && name == "gelu") name = "gelu_new";
  // BLIP-2's checkpoints give another function in dense_act_fn, which takes precedence.
  name = c.dense_act_fn = fields.text("dense_act_fn", name);
  c.activation = ops::activation_of(name, fields.where() + ": feed_forward_proj");
  // T5 applies dropout to the activation's output; we apply it to the input, which is the same only
  // for relu and gated activations (layers.cpp).
  if (!c.is_gated && c.activation != ops::Activation::Relu)
    throw UserError(
        "{}: feed_forward_proj \"{}\": {} without a gate is not supported; supported are relu and "
        "gated activations such as gated-gelu and gated-silu",
        fields.where(), c.feed_forward_proj, name);
}

// As in transformers 5: the head is separate if the files have one, unless the config says it is
// tied and it equals the embedding.
bool is_tied(const files::TensorSource& files, const std::string& prefix, bool said) {
  const files::TensorInfo* head = files.find(prefix + "lm_head.weight");
  const files::TensorInfo* table = files.find(prefix + "shared.weight");
  if (head == nullptr) return true;
  return said && (table == nullptr || same_tensor(files, *head, *table));
}

void read_head(Config& c, const ConfigFields& fields, const files::TensorSource* files,
               const std::string& prefix) {
  const bool tied = fields.boolean("tie_word_embeddings", true);
  c.scale_decoder_outputs = fields.boolean("scale_decoder_outputs", tied);
  const bool said = tied && c.scale_decoder_outputs;
  c.tie_word_embeddings = files != nullptr ? is_tied(*files, prefix, said) : tied;
}

}  // namespace

Config from_hugging_face(const json& root, const std::string& where,
                         const files::TensorSource* files, const std::string& prefix) {
  const ConfigFields fields(root, where);
  Config c;
  c.vocab_size = fields.integer_between("vocab_size", 1, int64_t{1} << 24, 32128);
  c.d_model = fields.integer_between("d_model", 1, int64_t{1} << 20, 512);
  c.d_kv = fields.integer_between("d_kv", 1, 256, 64);
  c.d_ff = fields.integer_between("d_ff", 1, int64_t{1} << 22, 2048);
  c.num_layers = fields.integer_between("num_layers", 1, 4096, 6);
  c.num_decoder_layers = fields.integer_between("num_decoder_layers", 1, 4096, c.num_layers);
  c.num_heads = fields.integer_between("num_heads", 1, 4096, 8);
  // An encoder uses half of the buckets for each direction, and half of those for one distance
  // each.
  c.relative_attention_num_buckets =
      fields.integer_between("relative_attention_num_buckets", 4, 1024, 32);
  c.relative_attention_max_distance =
      fields.integer_between("relative_attention_max_distance",
                             c.relative_attention_num_buckets / 2 + 1, int64_t{1} << 20, 128);
  c.dropout_rate = fields.probability("dropout_rate", 0.1);
  c.layer_norm_epsilon = fields.number("layer_norm_epsilon", 1e-6);
  c.initializer_factor = fields.number("initializer_factor", 1.0);
  read_feed_forward(c, fields);
  read_head(c, fields, files, prefix);
  c.pad_token_id = fields.integer("pad_token_id", 0);
  c.eos_token_ids =
      fields.has("eos_token_id") ? fields.ids("eos_token_id") : std::vector<int64_t>{1};
  c.decoder_start_token_id =
      fields.integer_between("decoder_start_token_id", 0, c.vocab_size - 1, c.pad_token_id);
  if (c.relative_attention_num_buckets % 2 != 0)
    throw UserError(
        "{}: relative_attention_num_buckets = {} is odd; an encoder needs two equal halves", where,
        c.relative_attention_num_buckets);
  if (!(c.layer_norm_epsilon > 0) || !(c.layer_norm_epsilon < 1))
    throw UserError("{}: layer_norm_epsilon = {} is out of range (0 to 1)", where,
                    c.layer_norm_epsilon);
  if (!fields.boolean("is_encoder_decoder", true))
    throw UserError("{}: is_encoder_decoder = false: only whole T5 models are supported", where);
  return c;
}

json to_hugging_face(const Config& c) {
  return {{"architectures", {"T5ForConditionalGeneration"}},
          {"model_type", "t5"},
          {"vocab_size", c.vocab_size},
          {"d_model", c.d_model},
          {"d_kv", c.d_kv},
          {"d_ff", c.d_ff},
          {"num_layers", c.num_layers},
          {"num_decoder_layers", c.num_decoder_layers},
          {"num_heads", c.num_heads},
          {"relative_attention_num_buckets", c.relative_attention_num_buckets},
          {"relative_attention_max_distance", c.relative_attention_max_distance},
          {"dropout_rate", c.dropout_rate},
          {"layer_norm_epsilon", c.layer_norm_epsilon},
          {"initializer_factor", c.initializer_factor},
          {"feed_forward_proj", c.feed_forward_proj},
          {"dense_act_fn", c.dense_act_fn},
          {"tie_word_embeddings", c.tie_word_embeddings},
          {"scale_decoder_outputs", c.scale_decoder_outputs},
          {"is_encoder_decoder", true},
          {"use_cache", true},
          {"pad_token_id", c.pad_token_id},
          {"eos_token_id", ids_or_number(c.eos_token_ids)},
          {"decoder_start_token_id", c.decoder_start_token_id}};
}

}  // namespace snug::models::t5
