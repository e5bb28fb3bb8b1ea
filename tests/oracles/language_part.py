#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Expected values for tests/parity from transformers: small random models that also see pictures, in
float32, given text alone. What a case consists of: parity_case.py; of parameters the language model's.

Run: python3 language_part.py ../data/language_part [CASE …]     (torch 2.11, transformers 5, safetensors)
"""
import sys
from pathlib import Path

import torch
from parity_case import jitter, mild, scaled, write_case
from transformers import CONFIG_MAPPING, AutoModelForImageTextToText

VOCABULARY, LENGTH = 64, 16
TEXT = dict(vocab_size=VOCABULARY, hidden_size=32, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=128, initializer_range=0.2, bos_token_id=2, eos_token_id=3, pad_token_id=1)
CLIP = dict(hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1, image_size=8, patch_size=4)
TOWER = dict(depth=1, hidden_size=8, intermediate_size=8, num_heads=1, out_hidden_size=32)
AXES = dict(rope_type="default", rope_theta=500.0, mrope_section=[2, 1, 1])
CASES = {
    "gemma3": dict(
        text_config=dict(TEXT, model_type="gemma3_text", head_dim=12, query_pre_attn_scalar=9, num_hidden_layers=3,
                         sliding_window=5, sliding_window_pattern=3, rope_parameters=dict(
                             full_attention=dict(rope_type="linear", factor=2.0, rope_theta=1e6),
                             sliding_attention=dict(rope_type="default", rope_theta=1e4))),
        vision_config=CLIP, mm_tokens_per_image=1, image_token_index=60, boi_token_index=61, eoi_token_index=62),
    # As E2B, with experts besides: embeddings by layer, other heads in layers that see all, keys of other layers.
    "gemma4": dict(
        text_config=dict(TEXT, model_type="gemma4_text", head_dim=8, global_head_dim=16, num_hidden_layers=3, sliding_window=5,
                         rms_norm_eps=1e-1, num_kv_shared_layers=1, use_double_wide_mlp=True, hidden_size_per_layer_input=4,
                         vocab_size_per_layer_input=VOCABULARY, enable_moe_block=True, num_experts=4, top_k_experts=2,
                         moe_intermediate_size=12, tie_word_embeddings=True,
                         layer_types=["sliding_attention", "full_attention", "full_attention"]),
        vision_config=dict(hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1, num_key_value_heads=1,
                           head_dim=8, patch_size=4, position_embedding_size=16), audio_config=None,
        boi_token_id=61, eoi_token_id=62, image_token_id=60, video_token_id=63, boa_token_id=61, eoa_token_index=62, audio_token_id=63),
    "mistral3": dict(
        text_config=dict(TEXT, model_type="ministral3", head_dim=12, tie_word_embeddings=True, rope_parameters=dict(
            rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=6,
            max_position_embeddings=128, mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=0.4)),
        vision_config=dict(CLIP, model_type="pixtral", head_dim=8), image_token_index=60, spatial_merge_size=2),
    "llava": dict(text_config=dict(TEXT, model_type="llama"), vision_config=dict(CLIP, model_type="clip_vision_model"),
                  image_token_index=60),
    "llava_onevision": dict(text_config=dict(TEXT, model_type="qwen2"), image_token_index=60, video_token_index=61,
                            vision_config=dict(CLIP, model_type="siglip_vision_model")),
    "internvl": dict(text_config=dict(TEXT, model_type="qwen3", head_dim=12), image_token_id=60,
                     vision_config=dict(CLIP, model_type="internvl_vision", image_size=[8, 8], patch_size=[4, 4])),
    "qwen2_vl": dict(text_config=dict(TEXT, rope_parameters=AXES, tie_word_embeddings=True), image_token_id=60,
                     video_token_id=61, tie_word_embeddings=True, vision_start_token_id=62, vision_end_token_id=63,
                     vision_config=dict(depth=1, embed_dim=8, hidden_size=32, num_heads=1, mlp_ratio=1)),
    "qwen2_5_vl": dict(text_config=dict(TEXT, rope_parameters=AXES), image_token_id=60, video_token_id=61,
                       vision_start_token_id=62, vision_end_token_id=63, vision_config=TOWER),
    "qwen3_5": dict(text_config=dict(TEXT, rms_norm_eps=1e-2, head_dim=16, linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=8,
                                     linear_value_head_dim=8, layer_types=["linear_attention", "full_attention"]),
                    image_token_id=60, video_token_id=61, vision_start_token_id=62, vision_end_token_id=63,
                    vision_config=dict(TOWER, num_position_embeddings=4)),
    "qwen3_5_moe": dict(text_config=dict(TEXT, rms_norm_eps=1e-2, head_dim=16, linear_num_key_heads=2, linear_num_value_heads=4,
                                         linear_key_head_dim=8, linear_value_head_dim=8, moe_intermediate_size=12, num_experts=4,
                                         num_experts_per_tok=2, shared_expert_intermediate_size=20,
                                         layer_types=["linear_attention", "full_attention"]),
                        image_token_id=60, video_token_id=61, vision_start_token_id=62, vision_end_token_id=63,
                        vision_config=dict(TOWER, num_position_embeddings=4)),
    "qwen3_vl": dict(text_config=dict(TEXT, head_dim=8, rope_parameters=dict(AXES, mrope_interleaved=True)),
                     image_token_id=60, video_token_id=61, vision_start_token_id=62, vision_end_token_id=63,
                     vision_config=dict(TOWER, deepstack_visual_indexes=[0], num_position_embeddings=4)),
}


ROWS, PROMPTS, PROMPT = 8, 2, 7


def own(key, value):
    """By the name that it has in a language model alone."""
    if "language_model." not in key and not key.startswith("lm_head"):
        return {}
    key = key.replace("language_model.", "")
    if key.endswith("conv1d.weight"):
        value = value.squeeze(1)  # one row of taps a feature
    if key.endswith("per_expert_scale"):
        value = value.unsqueeze(1)
    if ".experts." not in key:
        return {key: value}
    prefix, fused = key.rsplit(".", 1)
    if ".mlp." not in key:  # Gemma 4's
        return {f"{prefix}.{expert}.{fused}.weight": whole for expert, whole in enumerate(value)}
    layers = ("gate_proj", "up_proj") if fused == "gate_up_proj" else ("down_proj",)
    return {f"{prefix}.{expert}.{layer}.weight": part for expert, whole in enumerate(value)
            for layer, part in zip(layers, whole.chunk(len(layers)))}


def write(name, folder):
    torch.manual_seed(1234)
    config = CONFIG_MAPPING[name](**CASES[name])
    model = AutoModelForImageTextToText.from_config(config, dtype=torch.float32, attn_implementation="eager")
    jitter(model)
    mild(model)
    scaled(model)
    # No token of a picture.
    ids = torch.randint(4, 60, (ROWS, LENGTH), generator=torch.Generator().manual_seed(99))
    labels = ids.clone()
    for row in range(ROWS):
        labels[row, : row % 5] = -100  # a masked prompt of another length each
    write_case(name, model, folder, {"input_ids": ids, "labels": labels},
               lambda m, rows: m(input_ids=ids[rows], labels=labels[rows]),
               lambda m, row, tokens: m(input_ids=torch.tensor([tokens])).logits[0, -1],
               ids[:PROMPTS, :PROMPT], ours=own)


if __name__ == "__main__":
    target, names = Path(sys.argv[1]), sys.argv[2:]
    for case in names or CASES:
        write(case, target / case)
