// The names of Llama weights in each layout. Our own names are Hugging Face's.
// SPDX-License-Identifier: Apache-2.0
#include <map>

#include "base/error.h"
#include "models/llama/units.h"

namespace snug::models::llama {
namespace {

struct Names {
  const char* ours;
  const char* litgpt;
  const char* gguf;
};

// {} is the layer's number. LitGPT fuses q, k and v, in this order.
constexpr Names kLayerNames[] = {
    {"input_layernorm.weight", "norm_1.weight", "attn_norm.weight"},
    {"post_attention_layernorm.weight", "norm_2.weight", "ffn_norm.weight"},
    {"self_attn.q_proj", "attn.qkv", "attn_q"},
    {"self_attn.k_proj", "attn.qkv", "attn_k"},
    {"self_attn.v_proj", "attn.qkv", "attn_v"},
    {"self_attn.o_proj", "attn.proj", "attn_output"},
    {"mlp.gate_proj", "mlp.fc_1", "ffn_gate"},
    {"mlp.up_proj", "mlp.fc_2", "ffn_up"},
    {"mlp.down_proj", "mlp.proj", "ffn_down"},
};
constexpr Names kTopNames[] = {
    {"model.embed_tokens.weight", "transformer.wte.weight", "token_embd.weight"},
    {"model.norm.weight", "transformer.ln_f.weight", "output_norm.weight"},
    {"lm_head.weight", "lm_head.weight", "output.weight"},
};

constexpr std::string_view kLayerPrefix = "model.layers.";

// "self_attn.q_proj.bias" with {"self_attn.q_proj", …, "attn_q"} -> "attn_q.bias"
std::string translate(const std::string& ours, bool gguf) {
  for (const Names& names : kLayerNames) {
    const std::string_view known = names.ours;
    if (ours.starts_with(known))
      return (gguf ? names.gguf : names.litgpt) + ours.substr(known.size());
  }
  throw InternalError("no file name for " + ours);
}

}  // namespace

Placement LlamaModel::placement(Layout layout, const nn::Parameter& parameter) const {
  const std::string& name = parameter.name;
  if (layout == Layout::HuggingFace) return {.tensor = name};
  const bool gguf = layout == Layout::Gguf;
  for (const Names& names : kTopNames)
    if (name == names.ours) return {.tensor = gguf ? names.gguf : names.litgpt};
  const size_t dot = name.find('.', kLayerPrefix.size());
  const std::string layer = name.substr(kLayerPrefix.size(), dot - kLayerPrefix.size());
  const std::string rest = name.substr(dot + 1);
  Placement place{.tensor =
                      (gguf ? "blk." : "transformer.h.") + layer + "." + translate(rest, gguf)};
  const bool is_q = rest.starts_with("self_attn.q_proj");
  const bool is_k = rest.starts_with("self_attn.k_proj");
  // Only GGUF's "llama" architecture pairs rotary rows; "qwen2" keeps Hugging Face's order.
  if (gguf && config_.model_type != "qwen2" && (is_q || is_k))
    place.paired_heads = is_q ? config_.num_attention_heads : config_.num_key_value_heads;
  const int64_t q_rows = config_.num_attention_heads * config_.head_dim;
  const int64_t kv_rows = config_.num_key_value_heads * config_.head_dim;
  if (!gguf && is_k) place.row_begin = q_rows;
  if (!gguf && rest.starts_with("self_attn.v_proj")) place.row_begin = q_rows + kv_rows;
  return place;
}

}  // namespace snug::models::llama
