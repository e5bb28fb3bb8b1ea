// The names of a decoder's weights in each layout. Our own names are Hugging Face's.
// SPDX-License-Identifier: Apache-2.0
#include <optional>
#include <string>

#include "base/error.h"
#include "models/decoder/units.h"

namespace snug::models::decoder {
namespace {

constexpr const char* kExpertScale = ".per_expert_scale";

struct Names {
  std::string_view ours;
  const char* litgpt;
  const char* gguf;
};

// LitGPT fuses q, k and v, in this order.
constexpr Names kLayerNames[] = {
    {"input_layernorm", "norm_1", "attn_norm"},
    {"post_attention_layernorm", "norm_2", "ffn_norm"},
    {"self_attn.q_proj", "attn.qkv", "attn_q"},
    {"self_attn.k_proj", "attn.qkv", "attn_k"},
    {"self_attn.q_norm", "attn.norm_q", "attn_q_norm"},
    {"self_attn.k_norm", "attn.norm_k", "attn_k_norm"},
    {"self_attn.v_proj", "attn.qkv", "attn_v"},
    {"self_attn.o_proj", "attn.proj", "attn_output"},
    {"operator_norm", "", "attn_norm"},
    {"ffn_norm", "", "ffn_norm"},
    {"self_attn.q_layernorm", "", "attn_q_norm"},
    {"self_attn.k_layernorm", "", "attn_k_norm"},
    {"self_attn.out_proj", "", "attn_output"},
    {"conv.in_proj", "", "shortconv.in_proj"},
    {"conv.conv", "", "shortconv.conv"},
    {"conv.out_proj", "", "shortconv.out_proj"},
    {"feed_forward.w1", "", "ffn_gate"},
    {"feed_forward.w2", "", "ffn_down"},
    {"feed_forward.w3", "", "ffn_up"},
    {"mlp.gate_proj", "mlp.fc_1", "ffn_gate"},
    {"mlp.up_proj", "mlp.fc_2", "ffn_up"},
    {"mlp.down_proj", "mlp.proj", "ffn_down"},
    {"mlp.c_fc", "", "ffn_up"},
    {"mlp.c_proj", "", "ffn_down"},
    {"self_attn.sinks", "", "attn_sinks.weight"},
    {"attention.query_key_value", "", "attn_qkv"},
    {"attention.dense", "", "attn_output"},
    {"self_attention.query_key_value", "", "attn_qkv"},
    {"self_attention.dense", "", "attn_output"},
    {"ln_attn", "", "attn_norm_2"},
    {"ln_mlp", "", "attn_norm"},
    {"mlp.dense_h_to_4h", "", "ffn_up"},
    {"mlp.dense_4h_to_h", "", "ffn_down"},
    {"self_attn.qkv_proj", "", "attn_qkv"},
    {"mlp.gate_up_proj", "", "ffn_up"},
    {"pre_feedforward_layernorm", "", "ffn_norm"},
    {"post_feedforward_layernorm", "", "post_ffw_norm"},
};
constexpr Names kTopNames[] = {
    {"model.embed_tokens.weight", "transformer.wte.weight", "token_embd.weight"},
    {"model.norm.weight", "transformer.ln_f.weight", "output_norm.weight"},
    {"model.norm.bias", "", "output_norm.bias"},
    {"model.embedding_norm.weight", "", "token_embd_norm.weight"},
    {"lm_head.weight", "lm_head.weight", "output.weight"},
    {"model.text_model.embed_tokens.weight", "", "token_embd.weight"},
    {"model.text_model.norm.weight", "", "output_norm.weight"},
    {"gpt_neox.embed_in.weight", "", "token_embd.weight"},
    {"gpt_neox.final_layer_norm.weight", "", "output_norm.weight"},
    {"gpt_neox.final_layer_norm.bias", "", "output_norm.bias"},
    {"embed_out.weight", "", "output.weight"},
    {"transformer.word_embeddings.weight", "", "token_embd.weight"},
    {"transformer.ln_f.weight", "", "output_norm.weight"},
    {"transformer.ln_f.bias", "", "output_norm.bias"},
};

const char* name_in(Layout layout, const Names& names) {
  return layout == Layout::Gguf ? names.gguf : names.litgpt;
}

// "self_attn.q_proj" with {"self_attn.q_proj", …, "attn_q"} -> "attn_q"
std::string layer_name(Layout layout, const Family& family, std::string_view ours) {
  // Llama's norm of this name is before the MLP, as gpt-oss's is, which llama.cpp names otherwise.
  if ((family.norms != Norms::Before || family.sinks) && ours == "post_attention_layernorm")
    return "post_attention_norm";
  if (ours == family.names.router) return "ffn_gate_inp";
  for (const Names& names : kLayerNames)
    if (ours == names.ours) return name_in(layout, names);
  throw InternalError(fmt::format("no file name for {}", ours));
}

// "model.layers.0.mlp.experts.3.down_proj.bias"
struct ExpertName {
  std::string experts;  // "model.layers.0.mlp.experts."
  int64_t number;       // 3
  std::string layer;    // "down_proj"
  std::string kind;     // ".bias"
};

std::optional<ExpertName> expert_name(const Family& family, const std::string& name) {
  const std::string experts = std::string(family.names.experts) + ".";
  const size_t found = name.find(experts);
  if (found == std::string::npos) return std::nullopt;
  const size_t number = found + experts.size(), layer = name.find('.', number) + 1;
  if (name[number] < '0' || name[number] > '9') return std::nullopt;  // a router's
  const size_t kind = name.find('.', layer);
  return ExpertName{name.substr(0, number), std::stoll(name.substr(number, layer - number)),
                    name.substr(layer, kind - layer), name.substr(kind)};
}

// Number 3 of "model.layers.0.mlp.experts.down_proj_bias", as gpt-oss names it, or of
// "model.layers.0.block_sparse_moe.output_linear.weight". Biased experts' matrices are stacked as
// (in, out), and a fused layer's gates and ups take turns.
Placement in_stack(const Config& c, const nn::Parameter& parameter) {
  const std::optional<ExpertName> of = expert_name(*c.family, parameter.name);
  if (!of) return {.tensor = parameter.name};
  if (!c.family->biased_experts)
    return {.tensor = of->experts + of->layer + c.family->names.expert_stack,
            .stacked = c.num_experts,
            .index = of->number};
  const bool is_bias = of->kind == ".bias";
  return {.tensor = of->experts + of->layer + (is_bias ? "_bias" : ""),
          .order =
              of->layer == c.family->names.expert_gate ? RowOrder{1, 2, c.expert_size} : RowOrder{},
          .transposed = !is_bias,
          .stacked = c.num_experts,
          .index = of->number};
}

Placement in_hugging_face(const Config& c, const nn::Parameter& parameter) {
  Placement place{.tensor = parameter.name};
  if (c.family->fused_experts) place = in_stack(c, parameter);
  if (c.family->normed_experts && parameter.name.ends_with(kExpertScale))
    place.shape = {c.num_experts};
  // A convolution of each feature by itself.
  if (parameter.name.ends_with(".conv.conv.weight") || parameter.name.ends_with(".conv1d.weight"))
    place.shape = {parameter.whole_shape()[0], 1, parameter.whole_shape()[1]};
  return place;
}

// Number 3 of "blk.0.ffn_down_exps.weight". A fused layer's gates and ups are two tensors.
Placement in_gguf_stack(const Config& c, const std::string& block, const ExpertName& of) {
  const WeightNames& names = c.family->names;
  const bool is_gate = of.layer == names.expert_gate;
  const std::string gates = block + "ffn_gate_exps" + of.kind,
                    ups = block + "ffn_up_exps" + of.kind;
  return {.tensor = is_gate                       ? gates
                    : of.layer == names.expert_up ? ups
                                                  : block + "ffn_down_exps" + of.kind,
          .second_half = is_gate && c.family->fused_experts ? ups : "",
          .stacked = c.num_experts,
          .index = of.number};
}

// Rows of each head in pairs.
RowOrder pairs(int64_t heads, const nn::Parameter& parameter) {
  return {heads, 2, parameter.whole_shape()[0] / heads / 2};
}

}  // namespace

Placement DecoderModel::placement(Layout layout, const nn::Parameter& parameter) const {
  const std::string& name = parameter.name;
  if (layout == Layout::HuggingFace) return in_hugging_face(config_, parameter);
  const bool is_gguf = layout == Layout::Gguf;
  if (is_gguf ? config_.family->gguf.empty() : !config_.family->in_litgpt)
    throw UserError("{} models are neither read nor written {}; use a Hugging Face directory",
                    config_.family->model_type, is_gguf ? "as GGUF files" : "in LitGPT's layout");
  const double added = layout == Layout::Gguf &&
                               config_.family->norm_form == kernels::NormForm::Gemma &&
                               name.ends_with("norm.weight")
                           ? 1
                           : 0;
  for (const Names& names : kTopNames)
    if (name == names.ours) return {.tensor = name_in(layout, names), .added = added};
  const size_t number = std::string_view(config_.family->names.layers).size();
  const size_t dot = name.find('.', number);
  const size_t kind = name.ends_with("sinks") ? name.size() : name.rfind('.');
  const std::string layer = name.substr(number, dot - number);
  const std::string rest = name.substr(dot + 1, kind - dot - 1);
  const std::string block = (layout == Layout::Gguf ? "blk." : "transformer.h.") + layer + ".";
  if (const auto of = expert_name(*config_.family, name)) return in_gguf_stack(config_, block, *of);
  Placement place{.tensor = block + layer_name(layout, *config_.family, rest) + name.substr(kind),
                  .added = added};
  const bool is_q = rest == "self_attn.q_proj", is_k = rest == "self_attn.k_proj";
  if (layout == Layout::Gguf) {
    const int64_t kv = config_.num_key_value_heads, queries = config_.num_attention_heads / kv;
    if (config_.family->interleaved && rest == config_.family->names.qkv)
      place.order = {1, kv, queries + 2, queries};
    if (config_.family->gguf_rows == GgufRows::Paired && (is_q || is_k))
      place.order =
          pairs(is_q ? config_.num_attention_heads : config_.num_key_value_heads, parameter);
    return place;
  }
  const int64_t q_rows = config_.num_attention_heads * config_.head_dim;
  const int64_t kv_rows = config_.num_key_value_heads * config_.head_dim;
  if (is_k) place.row_begin = q_rows;
  if (rest == "self_attn.v_proj") place.row_begin = q_rows + kv_rows;
  return place;
}

}  // namespace snug::models::decoder
