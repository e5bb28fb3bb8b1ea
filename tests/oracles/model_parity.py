#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Expected values for tests/parity from transformers: small random models of the families beside
Llama's (llama_parity.py), in float32. What a case consists of: parity_case.py.

Run: python3 model_parity.py ../data/parity [CASE …]      (torch 2.11, transformers 5, safetensors)
"""
import sys
from pathlib import Path

import torch
from parity_case import BATCH, jitter, lean, mild, ragged, scaled, write_case
from transformers import (ArceeConfig, AutoModelForCausalLM, DeepseekV2Config, DeepseekV3Config, Dots1Config, Ernie4_5Config, Exaone4Config, FalconConfig, Gemma2Config, Gemma3TextConfig, Gemma4TextConfig, Gemma4UnifiedTextConfig, GemmaConfig, Glm4Config, Glm4MoeConfig, Glm4MoeLiteConfig, GlmConfig, GPT2Config, GPTNeoXConfig, GptOssConfig, GraniteConfig, GraniteMoeHybridConfig, HeliumConfig, Lfm2Config, Lfm2MoeConfig, MiniMaxM2Config, Ministral3Config, MinistralConfig, MixtralConfig,
                          Olmo2Config, Olmo3Config, OlmoeConfig, OPTConfig, Phi3Config,
                          Qwen2MoeConfig, Qwen3_5MoeTextConfig, Qwen3_5TextConfig, Qwen3Config, Qwen3MoeConfig, Qwen3NextConfig, SeedOssConfig, SmolLM3Config, StableLmConfig, Starcoder2Config, T5Config, T5ForConditionalGeneration)

VOCABULARY = 96

OPT = dict(vocab_size=VOCABULARY, hidden_size=32, ffn_dim=48, num_hidden_layers=2,
           num_attention_heads=4, max_position_embeddings=128, init_std=0.2, dropout=0.1,
           attention_dropout=0.1, bos_token_id=2, eos_token_id=2, pad_token_id=1)
T5 = dict(vocab_size=VOCABULARY, d_model=32, d_kv=6, d_ff=40, num_layers=2, num_heads=4,
          relative_attention_num_buckets=8, relative_attention_max_distance=14, dropout_rate=0.1,
          decoder_start_token_id=0, eos_token_id=1, pad_token_id=0)
GPT2 = dict(vocab_size=VOCABULARY, n_positions=128, n_embd=32, n_layer=2, n_head=2, initializer_range=0.2,
            bos_token_id=2, eos_token_id=2)
# For models that descend from Llama.
SMALL = dict(vocab_size=VOCABULARY, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
             num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128, initializer_range=0.2,
             bos_token_id=2, eos_token_id=2, pad_token_id=None)
# The norm behind the delta rule is of single heads, some of which are small: a larger epsilon keeps roundings small.
STEADY = dict(SMALL, rms_norm_eps=1e-1)
# Heads of latent attention: 8 elements that stay, 4 that rotate.
LATENT = dict(SMALL, num_key_value_heads=4, kv_lora_rank=10, qk_nope_head_dim=8, qk_rope_head_dim=4, moe_intermediate_size=12,
              n_routed_experts=8, num_experts_per_tok=3)
BALANCED = dict(output_router_logits=True, router_aux_loss_coef=0.5)
NEOX = dict(vocab_size=VOCABULARY, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
            max_position_embeddings=128, initializer_range=0.2, bos_token_id=2, eos_token_id=2)
FALCON = dict(vocab_size=VOCABULARY, hidden_size=32, ffn_hidden_size=48, num_hidden_layers=2, num_attention_heads=4,
              max_position_embeddings=128, initializer_range=0.2, bos_token_id=2, eos_token_id=2)
GROUPED = dict(new_decoder_architecture=True, num_attention_heads=8, num_kv_heads=2)
DECODERS = {
    "gpt2": GPT2Config(**GPT2),
    # minGPT's: a head of its own; and what else a config may say.
    "gpt2-untied": GPT2Config(**GPT2, tie_word_embeddings=False, n_inner=40, activation_function="gelu",
                              scale_attn_by_inverse_layer_idx=True),
    "opt": OPTConfig(**OPT),
    # As opt-350m: norms behind, a narrower embedding.
    "opt-after": OPTConfig(**OPT, do_layer_norm_before=False, word_embed_proj_dim=20),
    "opt-plain": OPTConfig(**OPT, enable_bias=False, tie_word_embeddings=False,
                           activation_function="gelu", _remove_final_layer_norm=True),
    "qwen3": Qwen3Config(**SMALL, head_dim=12, tie_word_embeddings=True),
    # With dropout, as its published models.
    "granite": GraniteConfig(**SMALL, embedding_multiplier=6.0, logits_scaling=4.0, residual_multiplier=0.22,
                             attention_multiplier=0.3, attention_dropout=0.1, tie_word_embeddings=True),
    # Mamba 2 in all layers but one, which does not rotate; all heads read one group.
    "granite-hybrid": GraniteMoeHybridConfig(**{**STEADY, "num_hidden_layers": 3}, num_local_experts=0, shared_intermediate_size=40,
                                             embedding_multiplier=6.0, logits_scaling=4.0, residual_multiplier=0.22,
                                             attention_multiplier=0.3, mamba_n_heads=8, mamba_d_head=8, mamba_d_state=12,
                                             layer_types=["mamba", "attention", "mamba"], position_embedding_type="nope",
                                             tie_word_embeddings=True),
    # Groups, whose norms are apart, limits of the time step, no biases of the convolution but those around it, a layer
    # that rotates.
    "granite-hybrid-groups": GraniteMoeHybridConfig(**STEADY, num_local_experts=0, shared_intermediate_size=40, mamba_n_heads=4,
                                                    mamba_n_groups=2, mamba_d_head=16, mamba_d_state=8, mamba_d_conv=2,
                                                    mamba_conv_bias=False, mamba_proj_bias=True, attention_bias=True,
                                                    time_step_limit=(0.9, 1.6), layer_types=["attention", "mamba"],
                                                    position_embedding_type="rope"),
    # As Granite 4.0 Micro: attention alone.
    "granite-hybrid-dense": GraniteMoeHybridConfig(**SMALL, num_local_experts=0, shared_intermediate_size=40,
                                                   attention_multiplier=0.3, mamba_n_heads=8, mamba_d_head=8,
                                                   layer_types=["attention"] * 2, position_embedding_type="rope"),
    # Experts in one tensor for all, beside an MLP that all tokens take.
    "granite-hybrid-moe": GraniteMoeHybridConfig(**{**STEADY, "intermediate_size": 12}, num_local_experts=6, num_experts_per_tok=3,
                                                 shared_intermediate_size=20, mamba_n_heads=8, mamba_d_head=8, mamba_d_state=12,
                                                 layer_types=["mamba", "attention"]),
    "granite-hybrid-balanced": GraniteMoeHybridConfig(**{**SMALL, "intermediate_size": 12}, num_local_experts=6,
                                                      num_experts_per_tok=2, shared_intermediate_size=20, mamba_n_heads=8,
                                                      mamba_d_head=8, layer_types=["attention"] * 2, position_embedding_type="rope",
                                                      **BALANCED),
    "smollm3": SmolLM3Config(**SMALL, no_rope_layer_interval=2),
    # Within its positions, where nothing is scaled.
    "olmo2-dynamic": Olmo2Config(**{**SMALL, "num_hidden_layers": 1}, attention_bias=True, rope_parameters=dict(
        rope_type="dynamic", rope_theta=10000.0, factor=2.0, original_max_position_embeddings=8)),
    "olmo2": Olmo2Config(**SMALL),
    # The last of four layers sees all, with scaled frequencies.
    "olmo3": Olmo3Config(**{**SMALL, "num_hidden_layers": 4}, sliding_window=5, rope_parameters=dict(
        full_attention=dict(rope_type="yarn", rope_theta=500000.0, factor=4.0, original_max_position_embeddings=16),
        sliding_attention=dict(rope_type="default", rope_theta=500000.0))),
    # The last of four layers sees all and does not rotate; without a window all of them do.
    "exaone4": Exaone4Config(**{**SMALL, "num_hidden_layers": 4}, sliding_window=5, tie_word_embeddings=True),
    "exaone4-full": Exaone4Config(**SMALL, sliding_window=None, layer_types=["full_attention"] * 2,
                                  rope_parameters=dict(rope_type="llama3", rope_theta=10000.0, factor=4.0,
                                                       low_freq_factor=1.0, high_freq_factor=4.0,
                                                       original_max_position_embeddings=32)),
    # Half of a head rotates.
    "phi3": Phi3Config(**{**SMALL, "pad_token_id": 0}, sliding_window=7, rope_parameters=dict(
        rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.5)),
    # All rows are longer than the positions of the pretraining.
    "phi3-longrope": Phi3Config(**{**SMALL, "pad_token_id": 0}, original_max_position_embeddings=6,
                                rope_parameters=dict(rope_type="longrope", rope_theta=10000.0,
                                                     short_factor=[1.0, 1.1, 1.3, 1.6],
                                                     long_factor=[1.5, 2.5, 4.0, 7.0])),
    # Factors that are not those of the lengths.
    "phi3-factors": Phi3Config(**{**SMALL, "pad_token_id": 0, "num_hidden_layers": 1}, original_max_position_embeddings=64,
                               rope_parameters=dict(rope_type="longrope", rope_theta=10000.0, factor=8.0,
                                                    attention_factor=1.3, short_factor=[1.0, 1.1, 1.3, 1.6],
                                                    long_factor=[1.5, 2.5, 4.0, 7.0])),
    # Caps low enough to matter.
    "gemma2": Gemma2Config(**{**SMALL, "pad_token_id": 0}, head_dim=12, query_pre_attn_scalar=9, sliding_window=5,
                           attn_logit_softcapping=2.0, final_logit_softcapping=3.0),
    "gemma": GemmaConfig(**{**SMALL, "pad_token_id": 0}, head_dim=12, tie_word_embeddings=True),
    # Neighbours rotate together, in half of a head; biases of q, k and v alone.
    "glm": GlmConfig(**SMALL, head_dim=12, attention_bias=True),
    # With norms behind attention and MLP.
    "glm4": Glm4Config(**SMALL, head_dim=12, attention_bias=False, rope_parameters=dict(
        rope_type="yarn", rope_theta=10000.0, partial_rotary_factor=0.5, factor=4.0, original_max_position_embeddings=16)),
    "ernie4-5": Ernie4_5Config(**SMALL, head_dim=12, use_bias=True, tie_word_embeddings=True),
    "helium": HeliumConfig(**SMALL, head_dim=8),
    # With dropout, as its published models.
    "seed-oss": SeedOssConfig(**SMALL, head_dim=12, attention_dropout=0.1, residual_dropout=0.1),
    # The square of ReLU, no gate.
    "arcee": ArceeConfig(**{**SMALL, "pad_token_id": 0}),
    # The gated delta rule in all layers but each fourth, where heads have gates and a quarter of each rotates.
    "qwen3-5": Qwen3_5TextConfig(**{**STEADY, "num_hidden_layers": 4}, head_dim=16, linear_num_key_heads=2,
                                 linear_num_value_heads=4, linear_key_head_dim=8, linear_value_head_dim=12,
                                 tie_word_embeddings=True),
    # Each key head by itself, the other way round, a head of its own.
    "qwen3-5-untied": Qwen3_5TextConfig(**STEADY, head_dim=8, linear_num_key_heads=3, linear_num_value_heads=3, linear_key_head_dim=16,
                                        linear_value_head_dim=8, linear_conv_kernel_dim=2, attention_bias=True,
                                        layer_types=["full_attention", "linear_attention"]),
    # Experts in one tensor for all, and one that every token takes.
    "qwen3-5-moe": Qwen3_5MoeTextConfig(**{**STEADY, "num_hidden_layers": 3}, head_dim=16, moe_intermediate_size=12, num_experts=6,
                                        num_experts_per_tok=3, shared_expert_intermediate_size=20, linear_num_key_heads=2,
                                        linear_num_value_heads=4, linear_key_head_dim=8, linear_value_head_dim=8,
                                        layer_types=["linear_attention", "full_attention", "linear_attention"]),
    # What the delta rule reads is made by two layers, by key head.
    "qwen3-next": Qwen3NextConfig(**{**STEADY, "num_hidden_layers": 3}, head_dim=16, moe_intermediate_size=12, num_experts=6,
                                  num_experts_per_tok=3, shared_expert_intermediate_size=20, linear_num_key_heads=2,
                                  linear_num_value_heads=6, linear_key_head_dim=8, linear_value_head_dim=12, mlp_only_layers=[1],
                                  layer_types=["linear_attention", "full_attention", "linear_attention"]),
    "qwen2-moe": Qwen2MoeConfig(**{**SMALL, "num_hidden_layers": 3}, moe_intermediate_size=12, num_experts=6, num_experts_per_tok=3,
                                shared_expert_intermediate_size=20, mlp_only_layers=[2]),
    # Short convolutions around attention; an MLP of two thirds, rounded up.
    "lfm2": Lfm2Config(**{**SMALL, "pad_token_id": 0, "num_hidden_layers": 4, "intermediate_size": 66},
                       layer_types=["conv", "conv", "full_attention", "conv"], block_multiple_of=16),
    # More taps than some documents have rows, biases, a head of its own.
    "lfm2-bias": Lfm2Config(**{**SMALL, "pad_token_id": 0, "num_hidden_layers": 3}, full_attn_idxs=[1], conv_bias=True,
                            conv_L_cache=4, block_auto_adjust_ff_dim=False, tie_word_embeddings=False),
    # Experts that are scored one by one and chosen by a bias, behind a block without any.
    "lfm2-moe": Lfm2MoeConfig(**{**SMALL, "pad_token_id": 0, "num_hidden_layers": 3}, layer_types=["conv", "full_attention", "conv"],
                              num_dense_layers=1, moe_intermediate_size=12, num_experts=6, num_experts_per_tok=3,
                              routed_scaling_factor=1.5),
    # Queries made directly; groups by their best expert.
    "deepseek-v2": DeepseekV2Config(**LATENT, q_lora_rank=None, v_head_dim=6, mlp_bias=True, n_shared_experts=2, first_k_dense_replace=1,
                                    topk_method="group_limited_greedy", n_group=4, topk_group=2, routed_scaling_factor=1.5),
    # Groups by their two best; a scaling that raises scores too.
    "deepseek-v3": DeepseekV3Config(**{**LATENT, "num_hidden_layers": 3}, q_lora_rank=12, v_head_dim=6, n_shared_experts=1,
                                    first_k_dense_replace=2, n_group=4, topk_group=2, attention_bias=True, rope_parameters=dict(
                                        rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=32,
                                        mscale=1.0, mscale_all_dim=1.0)),
    # Pairs in halves, no groups, all blocks have experts.
    "deepseek-v3-halves": DeepseekV3Config(**LATENT, q_lora_rank=12, v_head_dim=6, n_shared_experts=1, first_k_dense_replace=0,
                                           n_group=1, topk_group=1, rope_interleave=False, norm_topk_prob=False,
                                           routed_scaling_factor=0.5),
    "glm4-moe": Glm4MoeConfig(**SMALL, head_dim=12, moe_intermediate_size=12, n_routed_experts=8, num_experts_per_tok=3,
                              n_shared_experts=1, use_qk_norm=True, attention_bias=True, routed_scaling_factor=1.5),
    # As GLM-4.5-Air: without norms of queries and keys.
    "glm4-moe-plain": Glm4MoeConfig(**SMALL, head_dim=12, moe_intermediate_size=12, n_routed_experts=8, num_experts_per_tok=3,
                                    n_shared_experts=1),
    # Values as wide as keys.
    "glm4-moe-lite": Glm4MoeLiteConfig(**LATENT, q_lora_rank=12, v_head_dim=12, n_shared_experts=1),
    "dots1": Dots1Config(**{**SMALL, "num_hidden_layers": 3}, head_dim=12, moe_intermediate_size=12, n_routed_experts=8,
                         num_experts_per_tok=3, n_shared_experts=2, first_k_dense_replace=1, sliding_window=7, max_window_layers=2,
                         norm_topk_prob=True, routed_scaling_factor=2.5),
    "minimax-m2": MiniMaxM2Config(**{**SMALL, "intermediate_size": 12}, head_dim=12, num_local_experts=8, num_experts_per_tok=3,
                                  rope_parameters=dict(rope_type="default", rope_theta=1e4, partial_rotary_factor=0.5)),
    "gpt-neox": GPTNeoXConfig(**NEOX),
    # One after the other, without biases of attention, all of a head rotates.
    "gpt-neox-serial": GPTNeoXConfig(**NEOX, use_parallel_residual=False, attention_bias=False, hidden_act="gelu_new", tie_word_embeddings=True,
                                     rope_parameters=dict(rope_type="linear", factor=2.0, rope_theta=500.0,
                                                          partial_rotary_factor=1.0)),
    # As Falcon 7B: all heads share a key, attention and MLP a norm.
    "falcon": FalconConfig(**FALCON),
    # As Falcon 40B: groups of heads share keys, attention and MLP have a norm each. Sizes that llama.cpp's converter takes
    # for granted.
    "falcon-grouped": FalconConfig(**{**FALCON, **GROUPED, "ffn_hidden_size": None, "max_position_embeddings": 2048}),
    # As Falcon2 11B: one norm again, and a head of its own.
    "falcon-shared-norm": FalconConfig(**{**FALCON, **GROUPED}, num_ln_in_parallel_attn=1, tie_word_embeddings=False,
                                       rope_parameters=dict(rope_type="linear", factor=2.0, rope_theta=500042.0)),
    # One after the other, with biases, each head with its own key.
    "falcon-serial": FalconConfig(**FALCON, parallel_attn=False, bias=True, multi_query=False),
    # With dropout, as its published models.
    "starcoder2": Starcoder2Config(**SMALL, sliding_window=7, attention_dropout=0.1, residual_dropout=0.1,
                                   embedding_dropout=0.1),
    "stablelm": StableLmConfig(**SMALL, use_qkv_bias=True, rope_parameters=dict(
        rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.5)),
    # Some experts have no tokens in some batches.
    "olmoe": OlmoeConfig(**{**SMALL, "intermediate_size": 8}, num_experts=24, num_experts_per_tok=2),
    # The first block has none.
    "qwen3-moe": Qwen3MoeConfig(**{**SMALL, "num_hidden_layers": 3}, head_dim=12, moe_intermediate_size=20,
                                num_experts=6, num_experts_per_tok=3, norm_topk_prob=True, mlp_only_layers=[0]),
    "mixtral": MixtralConfig(**SMALL, num_local_experts=4, sliding_window=7),
    # A limit low enough to matter, and frequencies of which some are scaled, some not, some in between.
    "gpt-oss": GptOssConfig(**{**SMALL, "intermediate_size": 24, "num_hidden_layers": 3}, head_dim=12, num_local_experts=6,
                            num_experts_per_tok=3, sliding_window=5, swiglu_limit=0.7, rope_parameters=dict(
                                rope_type="yarn", rope_theta=150000.0, factor=4.0, beta_fast=2.0, beta_slow=0.25,
                                truncate=False, original_max_position_embeddings=16)),
    # The first block has a window, the second sees all.
    "ministral": MinistralConfig(**SMALL, head_dim=12, sliding_window=7,
                                 layer_types=["sliding_attention", "full_attention"]),
    # Queries grow each six positions.
    "ministral3": Ministral3Config(**SMALL, head_dim=12, rope_parameters=dict(
        rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=6,
        max_position_embeddings=128, mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=0.4)),
    # With the loss that balances experts, of a weight that matters, and rows of several lengths.
    "olmoe-balanced": OlmoeConfig(**{**SMALL, "intermediate_size": 8}, num_experts=10, num_experts_per_tok=2,
                                  **BALANCED),
    "qwen3-moe-balanced": Qwen3MoeConfig(**{**SMALL, "num_hidden_layers": 3}, head_dim=12, moe_intermediate_size=20,
                                         num_experts=6, num_experts_per_tok=3, norm_topk_prob=True,
                                         mlp_only_layers=[1], **BALANCED),
    "mixtral-balanced": MixtralConfig(**SMALL, num_local_experts=4, **BALANCED),
    "gpt-oss-balanced": GptOssConfig(**{**SMALL, "intermediate_size": 24}, head_dim=12, num_local_experts=6,
                                     num_experts_per_tok=3, **BALANCED),
    # The last of three layers sees all, by a base of its own, scaled.
    "gemma3": Gemma3TextConfig(**{**SMALL, "pad_token_id": 0, "num_hidden_layers": 3}, head_dim=12,
                               query_pre_attn_scalar=9, sliding_window=5, sliding_window_pattern=3,
                               rope_parameters=dict(
                                   full_attention=dict(rope_type="linear", factor=2.0, rope_theta=1e6),
                                   sliding_attention=dict(rope_type="default", rope_theta=1e4))),
}
# As 31B: other heads in layers that see all, where one layer makes keys and values.
GEMMA4 = {**STEADY, **dict(pad_token_id=0, head_dim=4, global_head_dim=8, sliding_window=5, tie_word_embeddings=True, initializer_range=0.1,
                           vocab_size_per_layer_input=VOCABULARY, final_logit_softcapping=None)}
TURNS = ["sliding_attention", "full_attention"]
DECODERS |= {
    "gemma4": Gemma4TextConfig(**{**GEMMA4, "num_hidden_layers": 3}, hidden_size_per_layer_input=0, attention_k_eq_v=True,
                               num_global_key_value_heads=1, layer_types=["sliding_attention", *TURNS]),
    # As E2B: embeddings by layer, and the last layers attend to others' keys.
    "gemma4-shared": Gemma4TextConfig(**{**GEMMA4, "num_hidden_layers": 5, "final_logit_softcapping": 30.0},
                                      hidden_size_per_layer_input=6, num_kv_shared_layers=3, use_double_wide_mlp=True,
                                      layer_types=["sliding_attention", "full_attention", "sliding_attention", *TURNS]),
    "gemma4-unified": Gemma4UnifiedTextConfig(**{k: v for k, v in GEMMA4.items() if "per_layer" not in k}, layer_types=TURNS),
    # As 26B-A4B: experts beside the MLP.
    "gemma4-moe": Gemma4TextConfig(**GEMMA4, hidden_size_per_layer_input=0, attention_k_eq_v=True, num_global_key_value_heads=1,
                                   enable_moe_block=True, num_experts=6, top_k_experts=3, moe_intermediate_size=12,
                                   layer_types=TURNS),
}
ENCODER_DECODERS = {
    "t5": T5Config(**T5),
    # As T5 v1.1 and FLAN-T5: a gate, a head of its own.
    "t5-gated": T5Config(**T5, num_decoder_layers=3, feed_forward_proj="gated-gelu",
                         tie_word_embeddings=False),
}
ROWS, LENGTH, PROMPTS, PROMPT = 8, 24, 2, 7


def write_decoder(name, folder):
    torch.manual_seed(1234)
    model = AutoModelForCausalLM.from_config(DECODERS[name], dtype=torch.float32,
                                             attn_implementation="eager")
    jitter(model)
    mild(model)
    lean(model)
    scaled(model)
    generator = torch.Generator().manual_seed(99)
    # transformers keeps OPT's row of the pad token (1) from learning where it is looked up.
    ids = torch.randint(2, VOCABULARY, (ROWS, LENGTH), generator=generator)
    labels = ids.clone()
    for row in range(ROWS):
        labels[row, : row % 5] = -100  # a masked prompt of another length each
        if name.endswith("-balanced"):
            labels[row, LENGTH - 3 * (row % 4):] = -100
            ids[row, LENGTH - 3 * (row % 4):] = -1
    stored = {"input_ids": ids, "labels": labels}
    if name.endswith("-balanced"):
        stored["routed"] = routed(model, ids[:BATCH])
    write_case(name, model, folder, stored,
               lambda m, rows: m(input_ids=ids[rows].clamp(min=0), attention_mask=(ids[rows] >= 0).long(),
                                 labels=labels[rows]),
               lambda m, row, tokens: m(input_ids=torch.tensor([tokens])).logits[0, -1],
               ids[:PROMPTS, :PROMPT], keep=("norm", "q_proj", "ln_", "self_attention.query_key_value", "conv.conv"),
               ours=lambda key, value: as_in_files(model.config.model_type, key, value))


def routed(model, ids):
    """How many of the tokens each expert of each block that has some gets: (blocks, experts)."""
    real = ids >= 0
    logits = model(input_ids=ids.clamp(min=0), attention_mask=real.long()).router_logits
    return torch.stack([torch.bincount(block[real.flatten()].topk(model.config.num_experts_per_tok).indices.flatten(),
                                       minlength=block.shape[-1]) for block in logits])


def as_in_files(family, key, value):
    """transformers keeps some weights under another name, or transposed, or all experts' in one."""
    if family == "gpt_neox":
        key = key.replace("lm_head", "embed_out")
    if family in ("mixtral", "minimax_m2"):
        key = key.replace(".mlp.", ".block_sparse_moe.")
    if key.endswith(("conv.weight", "conv1d.weight")):
        value = value.squeeze(1)  # one row of taps a feature
    if family == "granitemoehybrid":
        key = key.replace("moe.router.", "moe.router.layer.")
    if key.endswith("per_expert_scale"):
        value = value.unsqueeze(1)
    if ".experts." not in key:
        return {key: value.t() if family == "gpt2" and ".c_" in key and value.dim() == 2 else value}  # Conv1D keeps (in, out)
    prefix, fused = key.rsplit(".", 1)
    if family.startswith("gemma4"):
        return {f"{prefix}.{expert}.{fused}.weight": whole for expert, whole in enumerate(value)}
    if family == "gpt_oss":
        return dict(expert_of_gpt_oss(f"{prefix}.{expert}.", fused, whole) for expert, whole in enumerate(value))
    if family == "granitemoehybrid":
        layer = "input_linear" if fused == "gate_up_proj" else "output_linear"
        return {f"{prefix.removesuffix('.experts')}.{expert}.{layer}.weight": whole for expert, whole in enumerate(value)}
    layers = ("gate_proj", "up_proj") if fused == "gate_up_proj" else ("down_proj",)
    if family in ("mixtral", "lfm2_moe", "minimax_m2"):
        layers = [{"gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"}[layer] for layer in layers]
    return {f"{prefix}.{expert}.{layer}.weight": part for expert, whole in enumerate(value)
            for layer, part in zip(layers, whole.chunk(len(layers)))}


def expert_of_gpt_oss(prefix, name, value):
    """One of the stack `name`: gates and ups take turns in its last dimension, and matrices are (in, out)."""
    if "gate_up" in name:
        value = torch.cat((value[..., ::2], value[..., 1::2]), -1)
    layer = name.removesuffix("_bias")
    return (f"{prefix}{layer}.bias", value) if layer != name else (f"{prefix}{layer}.weight", value.t())


def write_encoder_decoder(name, folder):
    torch.manual_seed(1234)
    config = ENCODER_DECODERS[name]
    config._attn_implementation = "eager"
    model = T5ForConditionalGeneration(config)
    with torch.no_grad():
        for key, p in model.named_parameters():
            if "relative_attention_bias" in key:
                p.mul_(4)  # so that it matters
        if not config.scale_decoder_outputs:
            model.lm_head.weight = torch.nn.Parameter(torch.randn(VOCABULARY, config.d_model) * 0.2)
    jitter(model, ("norm",))
    generator = torch.Generator().manual_seed(99)
    source = ragged([23, 9, 24, 16, 1, 20, 24, 12], VOCABULARY, 2, generator)
    labels = ragged([17, 20, 5, 18, 20, 3, 11, 20], VOCABULARY, 2, generator)
    tokens = torch.where(labels < 0, -1, torch.nn.functional.pad(labels, (1, 0))[:, :-1])

    def forward(m, rows):
        return m(input_ids=source[rows].clamp(min=0), attention_mask=(source[rows] >= 0).long(),
                 decoder_input_ids=tokens[rows].clamp(min=0),
                 labels=torch.where(labels[rows] < 0, -100, labels[rows]))

    def next_logits(m, row, ids):
        own = source[row][source[row] >= 0]
        return m(input_ids=own[None], decoder_input_ids=torch.tensor([ids])).logits[0, -1]

    write_case(name, model, folder, {"input_ids": tokens, "labels": labels, "source_ids": source},
               forward, next_logits, torch.zeros((PROMPTS, 1), dtype=torch.int32),
               keep=("norm", "bias", "SelfAttention.q"))


def main():
    target = Path(sys.argv[1])
    for cases, write in ((DECODERS, write_decoder), (ENCODER_DECODERS, write_encoder_decoder)):
        for name in cases:
            if len(sys.argv) == 2 or name in sys.argv[2:]:
                write(name, target / name)


if __name__ == "__main__":
    main()
