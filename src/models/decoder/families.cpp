// SPDX-License-Identifier: Apache-2.0
#include "models/decoder/families.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "base/error.h"

namespace snug::models::decoder {
namespace {

using nlohmann::json;

constexpr const char* kCommon = R"({
  "vocab_size": null, "hidden_size": null, "intermediate_size": null, "num_hidden_layers": null,
  "num_attention_heads": null, "num_key_value_heads": null, "head_dim": null, "hidden_act": "silu",
  "max_position_embeddings": 2048, "rms_norm_eps": 1e-6, "tie_word_embeddings": false,
  "initializer_range": 0.02, "attention_dropout": 0.0, "rope_theta": 10000.0, "rope_scaling": null,
  "original_max_position_embeddings": null,
  "bos_token_id": null, "eos_token_id": null, "pad_token_id": null})";

// Keys of transformers and of those who wrote a file, which do not change what a model computes.
// Quantized weights are refused by their types.
const std::set<std::string_view> kBookkeeping = {"architectures",
                                                 "attn_implementation",
                                                 "aux_loss_alpha",
                                                 "auto_map",
                                                 "base_model_name_or_path",
                                                 "block_dim",
                                                 "block_mlp_init_scale",
                                                 "block_norm_eps",
                                                 "block_out_init_scale",
                                                 "block_use_swiglu",
                                                 "block_use_xavier_init",
                                                 "cache_implementation",
                                                 "classifier_dropout",
                                                 "conv_dim",
                                                 "conv_dim_out",
                                                 "conv_use_xavier_init",
                                                 "do_sample",
                                                 "dtype",
                                                 "ep_size",
                                                 "experts_per_token",
                                                 "finetuning_task",
                                                 "full_attn_mod",
                                                 "id2label",
                                                 "init_method",
                                                 "initial_context_length",
                                                 "interpolate_factor",
                                                 "is_decoder",
                                                 "is_llama_config",
                                                 "label2id",
                                                 "language",
                                                 "length_penalty",
                                                 "max_length",
                                                 "max_new_tokens",
                                                 "max_window_layers",
                                                 "min_length",
                                                 "model_max_length",
                                                 "model_type",
                                                 "mlp_intermediate_size",
                                                 "mtp_num_hidden_layers",
                                                 "mtp_transformer_layers",
                                                 "mtp_use_dedicated_embeddings",
                                                 "name_or_path",
                                                 "num_beam_groups",
                                                 "num_beams",
                                                 "num_heads",
                                                 "num_labels",
                                                 "num_mtp_layers",
                                                 "num_mtp_modules",
                                                 "num_nextn_predict_layers",
                                                 "num_return_sequences",
                                                 "prefix",
                                                 "pretraining_tp",
                                                 "problem_type",
                                                 "qk_head_dim",
                                                 "quantization_config",
                                                 "repetition_penalty",
                                                 "return_dict",
                                                 "rope_parameters",
                                                 "seq_aux",
                                                 "task_specific_params",
                                                 "temperature",
                                                 "theta",
                                                 "tokenizer_class",
                                                 "top_k",
                                                 "top_p",
                                                 "torch_dtype",
                                                 "training_args",
                                                 "transformers.js_config",
                                                 "transformers_version",
                                                 "typical_p",
                                                 "unsloth_fixed",
                                                 "unsloth_version",
                                                 "use_cache",
                                                 "use_mtp",
                                                 "use_pos_enc"};

bool is_bookkeeping(const std::string& key) {
  return kBookkeeping.contains(key) || key.starts_with("_") || key.ends_with("_token_id");
}

// Keys that nobody described and that change nothing as they are.
bool says_nothing(const Family& family, const std::string& key, const json& value) {
  if (const json usual = usual_values(family, key); !usual.empty())
    return std::ranges::find(usual, value) != usual.end();
  // MiniMax-M2's: 1 for each block of attention.
  if (key == "attn_type_list" && value.is_array())
    return std::ranges::all_of(value, [](const json& type) { return type == 1; });
  // It weighs a loss that is on by output_router_logits, which has no place there either.
  if (key == "router_aux_loss_coef" && family.sigmoid_router) return true;
  return value.empty() || value == false || value == 0 || value == "";
}

size_t common_prefix(std::string_view a, std::string_view b) {
  return static_cast<size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

// LFM2's, with and without experts.
constexpr WeightNames kLfm2Names = {.output = "self_attn.out_proj",
                                    .q_norm = "self_attn.q_layernorm",
                                    .k_norm = "self_attn.k_layernorm",
                                    .first_norm = "operator_norm",
                                    .second_norm = "ffn_norm",
                                    .gate = "feed_forward.w1",
                                    .up = "feed_forward.w3",
                                    .down = "feed_forward.w2",
                                    .router = "feed_forward.gate",
                                    .experts = "feed_forward.experts",
                                    .expert_gate = "w1",
                                    .expert_up = "w3",
                                    .expert_down = "w2",
                                    .router_bias = "feed_forward.expert_bias",
                                    .norm = "model.embedding_norm"};

// Both kinds of Gemma 4. `own`: the first of the defaults, from the brace on.
Family gemma4(const char* model_type, const char* class_name, std::string_view own) {
  static std::deque<std::string> texts;  // which rows point to
  texts.push_back(std::string(own) + R"(,
      "num_key_value_heads": 4, "head_dim": 256, "global_head_dim": 512,
      "num_global_key_value_heads": null, "per_layer_config": null, "attention_bias": false,
      "attention_k_eq_v": false, "num_kv_shared_layers": 0, "use_double_wide_mlp": false,
      "hidden_act": "gelu_pytorch_tanh", "hidden_activation": "gelu_pytorch_tanh",
      "final_logit_softcapping": null, "layer_types": null, "rope_theta": 1000000.0,
      "rope_local_base_freq": 10000.0,
      "rope_scaling": {"rope_type": "proportional", "partial_rotary_factor": 0.25},
      "tie_word_embeddings": true})");
  return {.model_type = model_type,
          .class_name = class_name,
          .norms = Norms::Both,
          .qk_norm = QkNorm::Head,
          .norm_form = kernels::NormForm::Gemma4,
          .value_norm = true,
          .attention_scale = 1,
          .block_scale = true,
          .fused_experts = true,
          .mlp_beside_experts = true,
          .normed_experts = true,
          .window_pattern = 6,
          .last_sees_all = true,
          .window_rope = WindowRope::ByLayer,
          .names = {.mlp_norm = "pre_feedforward_layernorm",
                    .router = "router.proj",
                    .experts = "experts",
                    .expert_gate = "gate_up_proj"},
          .scaled_embedding = true,
          .defaults = texts.back().c_str()};
}

// A deque: models point to their rows.
std::deque<Family>& rows() {
  static std::deque<Family> all = {
      {.model_type = "llama",
       .class_name = "LlamaForCausalLM",
       .gguf = "llama",
       .gguf_rows = GgufRows::Paired,
       .in_litgpt = true,
       .defaults = R"({"attention_bias": false, "mlp_bias": false})"},
      {.model_type = "mistral",
       .class_name = "MistralForCausalLM",
       .gguf = "llama",
       .gguf_rows = GgufRows::Paired,
       .in_litgpt = true,
       .defaults = R"({"num_key_value_heads": 8, "sliding_window": 4096,
                       "max_position_embeddings": 131072})"},
      {.model_type = "ministral",
       .class_name = "MinistralForCausalLM",
       .defaults = R"({"num_key_value_heads": 8, "sliding_window": 4096, "layer_types": null,
                       "max_position_embeddings": 131072})"},
      {.model_type = "ministral3",
       .class_name = "Ministral3ForCausalLM",
       .gguf = "mistral3",
       .gguf_rows = GgufRows::Paired,
       .scaled_queries = true,
       .defaults = R"({"num_key_value_heads": 8, "head_dim": 128, "sliding_window": null,
                       "rms_norm_eps": 1e-5, "rope_theta": 1000000.0,
                       "rope_scaling": {"rope_type": "yarn", "factor": 16.0, "mscale": 1.0,
                                        "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1,
                                        "original_max_position_embeddings": 16384},
                       "max_position_embeddings": 262144})"},
      {.model_type = "qwen2",
       .class_name = "Qwen2ForCausalLM",
       .gguf = "qwen2",
       .in_litgpt = true,
       .qkv_bias = true,
       .defaults = R"({"num_key_value_heads": 32, "use_sliding_window": false,
                       "sliding_window": 4096, "max_window_layers": 28, "layer_types": null,
                       "max_position_embeddings": 32768})"},
      {.model_type = "qwen3",
       .class_name = "Qwen3ForCausalLM",
       .gguf = "qwen3",
       .qk_norm = QkNorm::Head,
       .defaults =
           R"({"num_key_value_heads": 32, "head_dim": 128, "attention_bias": false, "use_sliding_window": false,
                       "sliding_window": 4096, "max_window_layers": 28, "layer_types": null,
                       "max_position_embeddings": 32768})"},
      {.model_type = "qwen3_5_text",
       .class_name = "Qwen3_5ForCausalLM",
       .qk_norm = QkNorm::Head,
       .norm_form = kernels::NormForm::Gemma,
       .gated_attention = true,
       .defaults =
           R"({"num_key_value_heads": 4, "head_dim": 256, "attention_bias": false, "partial_rotary_factor": 0.25,
                       "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128,
                       "linear_value_head_dim": 128, "linear_num_key_heads": 16,
                       "linear_num_value_heads": 32, "full_attention_interval": 4,
                       "layer_types": null, "max_position_embeddings": 32768})"},
      {.model_type = "qwen3_5_moe_text",
       .class_name = "Qwen3_5MoeForCausalLM",
       .qk_norm = QkNorm::Head,
       .norm_form = kernels::NormForm::Gemma,
       .gated_attention = true,
       .defaults =
           R"({"num_key_value_heads": 2, "head_dim": 256, "attention_bias": false, "partial_rotary_factor": 0.25,
                       "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128,
                       "linear_value_head_dim": 128, "linear_num_key_heads": 16,
                       "linear_num_value_heads": 32, "full_attention_interval": 4,
                       "layer_types": null, "max_position_embeddings": 32768,
                       "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512,
                       "num_experts": 256, "num_local_experts": null, "num_experts_per_tok": 8,
                       "output_router_logits": false, "router_aux_loss_coef": 0.001})"},
      {.model_type = "qwen3_next",
       .class_name = "Qwen3NextForCausalLM",
       .qk_norm = QkNorm::Head,
       .norm_form = kernels::NormForm::Gemma,
       .gated_attention = true,
       .joined_delta = true,
       .defaults =
           R"({"num_key_value_heads": 2, "head_dim": 256, "attention_bias": false, "partial_rotary_factor": 0.25,
                       "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128,
                       "linear_value_head_dim": 128, "linear_num_key_heads": 16,
                       "linear_num_value_heads": 32, "full_attention_interval": 4,
                       "layer_types": null, "max_position_embeddings": 32768,
                       "decoder_sparse_step": 1, "mlp_only_layers": [],
                       "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512,
                       "num_experts": 512, "num_local_experts": null, "num_experts_per_tok": 10,
                       "norm_topk_prob": true, "output_router_logits": false,
                       "router_aux_loss_coef": 0.001})"},
      {.model_type = "qwen2_moe",
       .class_name = "Qwen2MoeForCausalLM",
       .defaults =
           R"({"num_key_value_heads": 16, "use_sliding_window": false, "sliding_window": 4096,
                       "max_window_layers": 28, "layer_types": null, "qkv_bias": true,
                       "max_position_embeddings": 32768, "decoder_sparse_step": 1,
                       "mlp_only_layers": [], "moe_intermediate_size": 1408,
                       "shared_expert_intermediate_size": 5632, "num_experts": 60,
                       "num_local_experts": null, "num_experts_per_tok": 4,
                       "norm_topk_prob": false, "output_router_logits": false,
                       "router_aux_loss_coef": 0.001})"},
      {.model_type = "granite",
       .class_name = "GraniteForCausalLM",
       .gguf = "granite",
       .gguf_rows = GgufRows::Paired,
       .defaults = R"({"attention_bias": false, "mlp_bias": false, "embedding_multiplier": 1.0,
                       "logits_scaling": 1.0, "residual_multiplier": 1.0,
                       "attention_multiplier": 1.0})"},
      {.model_type = "granitemoehybrid",
       .class_name = "GraniteMoeHybridForCausalLM",
       .fused_gate = true,
       .fused_experts = true,
       .mlp_beside_experts = true,
       .names = {.gate_up = "shared_mlp.input_linear",
                 .down = "shared_mlp.output_linear",
                 .router = "block_sparse_moe.router.layer",
                 .experts = "block_sparse_moe",
                 .expert_gate = "input_linear",
                 .expert_down = "output_linear",
                 .expert_stack = ".weight"},
       .defaults = R"({"intermediate_size": 11008, "attention_bias": false,
                       "embedding_multiplier": 1.0, "logits_scaling": 1.0,
                       "residual_multiplier": 1.0, "attention_multiplier": 1.0,
                       "num_local_experts": 8, "num_experts_per_tok": 2,
                       "output_router_logits": false, "router_aux_loss_coef": 0.001,
                       "shared_intermediate_size": 1024, "position_embedding_type": null,
                       "layer_types": null, "layers_block_type": null, "mamba_n_heads": 128,
                       "mamba_n_groups": 1, "mamba_d_state": 256, "mamba_d_head": "auto",
                       "mamba_d_conv": 4, "mamba_expand": 2, "mamba_chunk_size": 256,
                       "mamba_conv_bias": true, "mamba_proj_bias": false,
                       "time_step_limit": null})"},
      {.model_type = "smollm3",
       .class_name = "SmolLM3ForCausalLM",
       .gguf = "smollm3",
       .gguf_rows = GgufRows::Paired,
       .defaults = R"({"num_key_value_heads": 4, "attention_bias": false, "mlp_bias": false,
                       "no_rope_layers": null, "no_rope_layer_interval": 4,
                       "use_sliding_window": false, "sliding_window": null, "layer_types": null,
                       "rope_theta": 2000000.0, "max_position_embeddings": 32768,
                       "tie_word_embeddings": true})"},
      {.model_type = "olmo2",
       .class_name = "Olmo2ForCausalLM",
       .gguf = "olmo2",
       .norms = Norms::After,
       .qk_norm = QkNorm::Projection,
       .defaults = R"({"attention_bias": false, "rms_norm_eps": 1e-5})"},
      {.model_type = "olmo3",
       .class_name = "Olmo3ForCausalLM",
       .gguf = "olmo2",
       .gguf_window = true,
       .norms = Norms::After,
       .qk_norm = QkNorm::Projection,
       .window_pattern = 4,
       .window_rope = WindowRope::Unscaled,
       .defaults = R"({"attention_bias": false, "rms_norm_eps": 1e-5, "rope_theta": 500000.0,
                       "sliding_window": 4096, "layer_types": null})"},
      {.model_type = "exaone4",
       .class_name = "Exaone4ForCausalLM",
       .gguf = "exaone4",
       .gguf_window = true,
       .norms = Norms::After,
       .qk_norm = QkNorm::Head,
       .window_pattern = 4,
       .window_rope = WindowRope::Alone,
       .defaults = R"({"num_key_value_heads": 32, "rms_norm_eps": 1e-5, "sliding_window": 4096,
                       "sliding_window_pattern": 4, "layer_types": null})"},
      {.model_type = "phi3",
       .class_name = "Phi3ForCausalLM",
       .gguf = "phi3",
       .gguf_window = true,
       .fused_qkv = true,
       .fused_gate = true,
       .defaults = R"({"rms_norm_eps": 1e-5, "sliding_window": null, "partial_rotary_factor": 1.0,
                       "original_max_position_embeddings": 4096,
                       "max_position_embeddings": 4096})"},
      {.model_type = "gemma",
       .class_name = "GemmaForCausalLM",
       .gguf = "gemma",
       .norm_form = kernels::NormForm::Gemma,
       .scaled_embedding = true,
       .defaults = R"({"head_dim": 256, "attention_bias": false,
                       "hidden_act": "gelu_pytorch_tanh", "hidden_activation": null,
                       "max_position_embeddings": 8192, "tie_word_embeddings": true})"},
      {.model_type = "gemma2",
       .class_name = "Gemma2ForCausalLM",
       .gguf = "gemma2",
       .gguf_window = true,
       .norms = Norms::Both,
       .norm_form = kernels::NormForm::Gemma,
       .names = {.mlp_norm = "pre_feedforward_layernorm"},
       .scaled_embedding = true,
       .defaults = R"({"head_dim": 256, "num_key_value_heads": 4, "attention_bias": false,
                       "hidden_act": "gelu_pytorch_tanh", "hidden_activation": "gelu_pytorch_tanh",
                       "query_pre_attn_scalar": 256, "attn_logit_softcapping": 50.0,
                       "final_logit_softcapping": 30.0, "sliding_window": 4096,
                       "sliding_window_pattern": 2, "layer_types": null,
                       "max_position_embeddings": 8192, "tie_word_embeddings": true})"},
      {.model_type = "gemma3_text",
       .class_name = "Gemma3ForCausalLM",
       .gguf = "gemma3",
       .gguf_window = true,
       .norms = Norms::Both,
       .qk_norm = QkNorm::Head,
       .norm_form = kernels::NormForm::Gemma,
       .names = {.mlp_norm = "pre_feedforward_layernorm"},
       .scaled_embedding = true,
       .defaults = R"({"head_dim": 256, "num_key_value_heads": 4, "attention_bias": false,
                       "hidden_act": "gelu_pytorch_tanh", "hidden_activation": "gelu_pytorch_tanh",
                       "query_pre_attn_scalar": 256, "final_logit_softcapping": null, "sliding_window": 4096,
                       "sliding_window_pattern": 6, "layer_types": null, "rope_theta": 1000000.0,
                       "rope_local_base_freq": 10000.0, "max_position_embeddings": 131072,
                       "tie_word_embeddings": true})"},
      {.model_type = "minimax_m2",
       .class_name = "MiniMaxM2ForCausalLM",
       .qk_norm = QkNorm::Projection,
       .sigmoid_router = true,
       .names = {.router = "block_sparse_moe.gate",
                 .experts = "block_sparse_moe.experts",
                 .expert_gate = "w1",
                 .expert_up = "w3",
                 .expert_down = "w2",
                 .router_bias = "block_sparse_moe.e_score_correction_bias"},
       .defaults = R"({"num_key_value_heads": 8, "head_dim": 128, "num_local_experts": 256,
                       "num_experts_per_tok": 8, "partial_rotary_factor": 1.0, "rotary_dim": null,
                       "rope_theta": 5000000.0, "max_position_embeddings": 196608})"},
      gemma4("gemma4_text", "Gemma4ForCausalLM",
             R"({"hidden_size_per_layer_input": 256, "vocab_size_per_layer_input": 262144,
                 "enable_moe_block": false, "num_experts": null, "top_k_experts": null,
                 "moe_intermediate_size": null, "sliding_window": 512,
                 "max_position_embeddings": 131072)"),
      gemma4("gemma4_unified_text", "Gemma4UnifiedForCausalLM",
             R"({"sliding_window": 1024, "max_position_embeddings": 262144)"),
      {.model_type = "glm",
       .class_name = "GlmForCausalLM",
       .plain_output = true,
       .fused_gate = true,
       .rope_pairs = kernels::RopePairs::Neighbours,
       .defaults = R"({"num_key_value_heads": 2, "head_dim": 128, "attention_bias": true,
                       "rms_norm_eps": 1.5625e-07, "partial_rotary_factor": 0.5,
                       "max_position_embeddings": 131072})"},
      {.model_type = "glm4",
       .class_name = "Glm4ForCausalLM",
       .plain_output = true,
       .norms = Norms::Both,
       .fused_gate = true,
       .rope_pairs = kernels::RopePairs::Neighbours,
       .names = {.after_attention_norm = "post_self_attn_layernorm",
                 .after_mlp_norm = "post_mlp_layernorm"},
       .defaults = R"({"num_key_value_heads": 2, "head_dim": 128, "attention_bias": true,
                       "rms_norm_eps": 1.5625e-07, "partial_rotary_factor": 0.5,
                       "max_position_embeddings": 131072})"},
      {.model_type = "ernie4_5",
       .class_name = "Ernie4_5ForCausalLM",
       .rope_pairs = kernels::RopePairs::Neighbours,
       .defaults = R"({"num_key_value_heads": 2, "head_dim": 128, "use_bias": false,
                       "rms_norm_eps": 1e-5, "rope_theta": 500000.0,
                       "max_position_embeddings": 131072, "tie_word_embeddings": true})"},
      {.model_type = "arcee",
       .class_name = "ArceeForCausalLM",
       .gated = false,
       .defaults = R"({"hidden_act": "relu2", "rms_norm_eps": 1e-5, "attention_bias": false,
                       "mlp_bias": false, "max_position_embeddings": 4096})"},
      {.model_type = "helium",
       .class_name = "HeliumForCausalLM",
       .plain_output = true,
       .rope_pairs = kernels::RopePairs::Neighbours,
       .defaults = R"({"num_key_value_heads": 20, "head_dim": 128, "attention_bias": false,
                       "mlp_bias": false, "rms_norm_eps": 1e-8, "rope_theta": 100000.0,
                       "max_position_embeddings": 4096})"},
      {.model_type = "seed_oss",
       .class_name = "SeedOssForCausalLM",
       .plain_output = true,
       .defaults = R"({"num_key_value_heads": 8, "head_dim": 128, "attention_bias": true,
                       "attention_out_bias": false, "mlp_bias": false, "attention_dropout": 0.1,
                       "residual_dropout": 0.1, "max_position_embeddings": 524288})"},
      {.model_type = "lfm2",
       .class_name = "Lfm2ForCausalLM",
       .qk_norm = QkNorm::Head,
       .names = kLfm2Names,
       .defaults = R"({"num_key_value_heads": 8, "norm_eps": 1e-5, "rope_theta": 1000000.0,
                       "conv_L_cache": 3, "conv_bias": false, "block_ff_dim": null,
                       "block_auto_adjust_ff_dim": true, "block_multiple_of": 256,
                       "block_ffn_dim_multiplier": 1.0, "full_attn_idxs": null,
                       "layer_types": null, "tie_embedding": null,
                       "max_position_embeddings": 128000, "tie_word_embeddings": true})"},
      {.model_type = "lfm2_moe",
       .class_name = "Lfm2MoeForCausalLM",
       .qk_norm = QkNorm::Head,
       .sigmoid_router = true,
       .router_epsilon = 1e-6,
       .names = kLfm2Names,
       .defaults = R"({"num_key_value_heads": 8, "norm_eps": 1e-5, "rope_theta": 1000000.0,
                       "conv_L_cache": 3, "conv_bias": false, "layer_types": null,
                       "tie_embedding": null, "max_position_embeddings": 128000,
                       "moe_intermediate_size": 1792, "num_dense_layers": 2, "num_experts": 32,
                       "num_experts_per_tok": 4, "norm_topk_prob": true, "use_expert_bias": true,
                       "routed_scaling_factor": 1.0, "tie_word_embeddings": true})"},
      {.model_type = "deepseek_v2",
       .class_name = "DeepseekV2ForCausalLM",
       .rope_pairs = kernels::RopePairs::Neighbours,
       .names = {.shared_expert = "mlp.shared_experts"},
       .defaults = R"({"attention_bias": false, "mlp_bias": false, "q_lora_rank": 1536,
                       "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
                       "v_head_dim": 128, "moe_intermediate_size": 1407, "n_routed_experts": 64,
                       "n_shared_experts": 2, "num_experts_per_tok": null,
                       "first_k_dense_replace": 0, "topk_method": "greedy", "n_group": null,
                       "topk_group": null, "norm_topk_prob": false,
                       "routed_scaling_factor": 1.0})"},
      {.model_type = "deepseek_v3",
       .class_name = "DeepseekV3ForCausalLM",
       .sigmoid_router = true,
       .router_epsilon = 1e-20,
       .rope_pairs = kernels::RopePairs::Neighbours,
       .names = {.shared_expert = "mlp.shared_experts"},
       .defaults = R"({"num_key_value_heads": 128, "attention_bias": false, "q_lora_rank": 1536,
                       "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
                       "v_head_dim": 128, "rope_interleave": true, "moe_intermediate_size": 2048,
                       "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8,
                       "first_k_dense_replace": 3, "n_group": 8, "topk_group": 4,
                       "norm_topk_prob": true, "routed_scaling_factor": 2.5,
                       "max_position_embeddings": 4096})"},
      {.model_type = "glm4_moe",
       .class_name = "Glm4MoeForCausalLM",
       .plain_output = true,
       .qk_norm = QkNorm::Head,
       .sigmoid_router = true,
       .router_epsilon = 1e-20,
       .names = {.shared_expert = "mlp.shared_experts"},
       .defaults = R"({"num_key_value_heads": 8, "attention_bias": false, "use_qk_norm": false,
                       "rms_norm_eps": 1e-5, "partial_rotary_factor": 0.5,
                       "moe_intermediate_size": 1408, "n_routed_experts": 128,
                       "n_shared_experts": 1, "num_experts_per_tok": 8, "first_k_dense_replace": 1,
                       "n_group": 1, "topk_group": 1, "norm_topk_prob": true,
                       "routed_scaling_factor": 1.0, "max_position_embeddings": 131072})"},
      {.model_type = "glm4_moe_lite",
       .class_name = "Glm4MoeLiteForCausalLM",
       .sigmoid_router = true,
       .router_epsilon = 1e-20,
       .rope_pairs = kernels::RopePairs::Neighbours,
       .names = {.shared_expert = "mlp.shared_experts"},
       .defaults = R"({"num_key_value_heads": 20, "attention_bias": false, "q_lora_rank": 768,
                       "kv_lora_rank": 512, "qk_nope_head_dim": 192, "qk_rope_head_dim": 64,
                       "v_head_dim": 256, "rope_interleave": true, "rms_norm_eps": 1e-5,
                       "moe_intermediate_size": 1536, "n_routed_experts": 64,
                       "n_shared_experts": 1, "num_experts_per_tok": 4, "mlp_layer_types": null,
                       "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1, "norm_topk_prob": true,
                       "routed_scaling_factor": 1.8, "max_position_embeddings": 202752})"},
      {.model_type = "dots1",
       .class_name = "Dots1ForCausalLM",
       .qk_norm = QkNorm::Head,
       .sigmoid_router = true,
       .router_epsilon = 1e-20,
       .names = {.shared_expert = "mlp.shared_experts"},
       .defaults = R"({"num_key_value_heads": 32, "attention_bias": false,
                       "sliding_window": 4096, "max_window_layers": 62, "layer_types": null,
                       "moe_intermediate_size": 1408, "n_routed_experts": null,
                       "n_shared_experts": null, "num_experts_per_tok": null,
                       "first_k_dense_replace": 0, "n_group": 1, "topk_group": 1,
                       "norm_topk_prob": false, "routed_scaling_factor": 1.0})"},
      {.model_type = "gpt_neox",
       .class_name = "GPTNeoXForCausalLM",
       .gguf = "gptneox",
       .fused_qkv = true,
       .interleaved = true,
       .layer_norm = true,
       .gated = false,
       .mlp_bias = true,
       .names = {.embedding = "gpt_neox.embed_in",
                 .layers = "gpt_neox.layers.",
                 .qkv = "attention.query_key_value",
                 .output = "attention.dense",
                 .up = "mlp.dense_h_to_4h",
                 .down = "mlp.dense_4h_to_h",
                 .norm = "gpt_neox.final_layer_norm",
                 .head = "embed_out"},
       .defaults = R"({"hidden_act": "gelu", "layer_norm_eps": 1e-5, "rotary_pct": 0.25,
                       "rotary_emb_base": 10000.0, "partial_rotary_factor": null,
                       "use_parallel_residual": true, "attention_bias": true})"},
      {.model_type = "falcon",
       .class_name = "FalconForCausalLM",
       .gguf = "falcon",
       .fused_qkv = true,
       .interleaved = true,
       .layer_norm = true,
       .gated = false,
       .names = {.embedding = "transformer.word_embeddings",
                 .layers = "transformer.h.",
                 .qkv = "self_attention.query_key_value",
                 .output = "self_attention.dense",
                 .attention_norm = "ln_attn",
                 .mlp_norm = "ln_mlp",
                 .up = "mlp.dense_h_to_4h",
                 .down = "mlp.dense_4h_to_h",
                 .norm = "transformer.ln_f"},
       .defaults = R"({"activation": "gelu", "ffn_hidden_size": null, "num_kv_heads": null,
                       "layer_norm_epsilon": 1e-5, "bias": false, "alibi": false,
                       "new_decoder_architecture": false, "multi_query": true,
                       "parallel_attn": true, "num_ln_in_parallel_attn": null,
                       "tie_word_embeddings": true})"},
      {.model_type = "starcoder2",
       .class_name = "Starcoder2ForCausalLM",
       .gguf = "starcoder2",
       .layer_norm = true,
       .gated = false,
       .names = {.up = "mlp.c_fc", .down = "mlp.c_proj"},
       .defaults = R"({"hidden_act": "gelu_pytorch_tanh", "norm_epsilon": 1e-5, "use_bias": true,
                       "sliding_window": null, "residual_dropout": 0.0, "embedding_dropout": 0.0,
                       "max_position_embeddings": 4096, "tie_word_embeddings": true})"},
      {.model_type = "stablelm",
       .class_name = "StableLmForCausalLM",
       .gguf = "stablelm",
       .layer_norm = true,
       .defaults = R"({"num_key_value_heads": 32, "layer_norm_eps": 1e-5,
                       "partial_rotary_factor": 0.25, "use_qkv_bias": false,
                       "max_position_embeddings": 4096})"},
      {.model_type = "olmoe",
       .class_name = "OlmoeForCausalLM",
       .gguf = "olmoe",
       .qk_norm = QkNorm::Projection,
       .defaults =
           R"({"attention_bias": false, "rms_norm_eps": 1e-5, "max_position_embeddings": 4096,
                       "num_experts": 64, "num_experts_per_tok": 8, "norm_topk_prob": false,
                       "output_router_logits": false, "router_aux_loss_coef": 0.01})"},
      {.model_type = "qwen3_moe",
       .class_name = "Qwen3MoeForCausalLM",
       .gguf = "qwen3moe",
       .qk_norm = QkNorm::Head,
       .defaults =
           R"({"num_key_value_heads": 4, "attention_bias": false, "use_sliding_window": false,
                       "sliding_window": 4096, "max_position_embeddings": 32768,
                       "decoder_sparse_step": 1, "mlp_only_layers": [],
                       "moe_intermediate_size": 768, "num_experts": 128,
                       "num_local_experts": null, "num_experts_per_tok": 8,
                       "norm_topk_prob": false, "output_router_logits": false,
                       "router_aux_loss_coef": 0.001})"},
      {.model_type = "mixtral",
       .class_name = "MixtralForCausalLM",
       .gguf = "llama",
       .gguf_rows = GgufRows::Paired,
       .names = {.router = "block_sparse_moe.gate",
                 .experts = "block_sparse_moe.experts",
                 .expert_gate = "w1",
                 .expert_up = "w3",
                 .expert_down = "w2"},
       .defaults =
           R"({"num_key_value_heads": 8, "sliding_window": null, "rope_theta": 1000000.0,
                       "rms_norm_eps": 1e-5, "max_position_embeddings": 131072,
                       "num_local_experts": 8, "num_experts_per_tok": 2,
                       "output_router_logits": false, "router_aux_loss_coef": 0.001})"},
      {.model_type = "gpt_oss",
       .class_name = "GptOssForCausalLM",
       .gguf = "gpt-oss",
       .gguf_window = true,
       .sinks = true,
       .fused_experts = true,
       .biased_experts = true,
       .window_pattern = 2,
       .names = {.router = "mlp.router", .expert_gate = "gate_up_proj"},
       .defaults =
           R"({"num_key_value_heads": 8, "head_dim": 64, "attention_bias": true,
                       "sliding_window": 128, "layer_types": null, "rope_theta": 150000.0,
                       "rope_scaling": {"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0,
                                        "beta_slow": 1.0, "truncate": false,
                                        "original_max_position_embeddings": 4096},
                       "rms_norm_eps": 1e-5, "max_position_embeddings": 131072,
                       "num_local_experts": 128, "num_experts_per_tok": 4,
                       "swiglu_alpha": 1.702, "swiglu_limit": 7.0,
                       "output_router_logits": false, "router_aux_loss_coef": 0.001})"},
  };
  return all;
}

}  // namespace

const std::deque<Family>& families() { return rows(); }

void add_family(const Family& family) {
  if (find_family(family.model_type) != nullptr)
    throw UserError("model_type \"{}\" is a family of decoders already", family.model_type);
  rows().push_back(family);
}

const Family* find_family(std::string_view model_type) {
  const auto found = std::ranges::find(families(), model_type, &Family::model_type);
  return found == families().end() ? nullptr : &*found;
}

// A decoder is causal unasked.
json usual_values(const Family& family, const std::string& key) {
  if (key == "is_causal") return json::array({nullptr, true});
  // Pictures' tokens see one another, where there are any.
  if (key == "use_bidirectional_attention" && family.window_rope == WindowRope::ByLayer)
    return json::array({nullptr, "vision"});
  if (key == "attn_output_gate") return json::array({family.gated_attention});
  if (key == "qk_norm_type" && family.qk_norm == QkNorm::Projection)
    return json::array({"per_layer"});
  if (key == "use_qk_norm" && family.qk_norm != QkNorm::None) return json::array({true});
  if (key == "use_routing_bias" && family.sigmoid_router) return json::array({true});
  if (key == "output_gate_type") return json::array({"swish", "silu"});
  if (key == "mamba_ssm_dtype") return json::array({"float32"});
  if (key == "scoring_func") return json::array({family.sigmoid_router ? "sigmoid" : "softmax"});
  if (key == "topk_method" && family.sigmoid_router) return json::array({"noaux_tc"});
  if (key == "moe_layer_freq" || key == "partial_rotary_factor") return json::array({1});
  if (key == "normalization_function") return json::array({"rmsnorm"});
  if (key == "norm_type") return json::array({family.layer_norm ? "layer_norm" : "rms_norm"});
  if (key == "mlp_type") return json::array({family.gated ? "gated" : "default"});
  return json::array();
}

json default_config(const Family& family) {
  json config = json::parse(kCommon);
  config.update(json::parse(family.defaults));
  config["model_type"] = family.model_type;
  config["architectures"] = json::array({family.class_name});
  return config;
}

bool is_mixture(const Family& family) {
  const json config = default_config(family);
  return config.contains("num_experts_per_tok") || config.contains("top_k_experts");
}

std::vector<std::string> unknown_keys(const Family& family, const json& config) {
  const json known = default_config(family);
  std::vector<std::string> unknown;
  for (const auto& [key, value] : config.items())
    if (!known.contains(key) && !is_bookkeeping(key) && !says_nothing(family, key, value))
      unknown.push_back(key);
  return unknown;
}

// A model of several parts says what its language model is.
std::string text_model_of(const json& config) {
  const json part = config.value("text_config", json());
  const json type = part.is_object() ? part.value("model_type", json()) : json();
  if (!type.is_string() || find_family(type.get<std::string>()) == nullptr) return "";
  return fmt::format(
      "; its text model alone is a {}, which snug reads from a directory of its own, with this "
      "text_config as config.json and that model's names of weights",
      type.get<std::string>());
}

std::string nearest_family(std::string_view model_type, const json& config) {
  if (std::string text = text_model_of(config); !text.empty()) return text;
  for (const char* key : {"hidden_size", "num_hidden_layers", "num_attention_heads"})
    if (!config.contains(key))
      return fmt::format("; its config has no {}, which every family of decoders here has", key);
  const Family& nearest = *std::ranges::min_element(families(), {}, [&](const Family& family) {
    return std::tuple(unknown_keys(family, config).size(),
                      -static_cast<int64_t>(common_prefix(model_type, family.model_type)));
  });
  const std::vector<std::string> unknown = unknown_keys(nearest, config);
  if (unknown.empty())
    return fmt::format("; by the keys of its config it is nearest to {}", nearest.model_type);
  return fmt::format("; nearest is {}, which has no place for {}", nearest.model_type,
                     fmt::join(unknown, ", "));
}

}  // namespace snug::models::decoder
