#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Expected values for tests/parity from transformers: small random BLIP-2 models with either kind
of language model, in float32. What a case consists of: parity_case.py. Pictures are stored as bytes
and normalised here, with a mean and deviation of their own for one case.

Run: python3 blip2_parity.py ../data/parity [CASE …]      (torch 2.11, transformers 5, safetensors)
"""
import json
import sys
from pathlib import Path

import torch
from parity_case import jitter, ragged, write_case
from transformers import (Blip2Config, Blip2ForConditionalGeneration, Blip2QFormerConfig,
                          Blip2VisionConfig, OPTConfig, T5Config)

VOCABULARY, PICTURE, QUERIES, SIDE = 96, 95, 3, 12
VISION = dict(hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=2,
              image_size=SIDE, patch_size=4, attention_dropout=0.1, initializer_range=0.2)
# The last layer that looks at the picture is not the last one.
QFORMER = dict(hidden_size=16, intermediate_size=20, num_hidden_layers=4, num_attention_heads=2,
               encoder_hidden_size=24, initializer_range=0.2)
LANGUAGE = {
    "blip2-opt": OPTConfig(vocab_size=VOCABULARY, hidden_size=28, word_embed_proj_dim=28, ffn_dim=40,
                           num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=128,
                           init_std=0.2, bos_token_id=2, eos_token_id=2, pad_token_id=1),
    "blip2-t5": T5Config(vocab_size=VOCABULARY, d_model=28, d_kv=6, d_ff=36, num_layers=2,
                         num_heads=4, relative_attention_num_buckets=8,
                         relative_attention_max_distance=14, feed_forward_proj="gated-gelu",
                         tie_word_embeddings=False, decoder_start_token_id=0, eos_token_id=1,
                         pad_token_id=0),
}
CLIP = dict(image_mean=[0.48145466, 0.4578275, 0.40821073],
            image_std=[0.26862954, 0.26130258, 0.27577711])
OWN = dict(image_mean=[0.5, 0.4, 0.3], image_std=[0.2, 0.25, 0.3])
ROWS, PROMPTS = 8, 2


def normalised(pixels, how):
    values = pixels.float() / 255
    values = (values - torch.tensor(how["image_mean"])) / torch.tensor(how["image_std"])
    return values.permute(0, 3, 1, 2).contiguous()


def make_model(name):
    torch.manual_seed(1234)
    text = LANGUAGE[name]
    config = Blip2Config(vision_config=Blip2VisionConfig(**VISION),
                         qformer_config=Blip2QFormerConfig(**QFORMER), text_config=text,
                         num_query_tokens=QUERIES, image_token_index=PICTURE)
    config._attn_implementation = "eager"
    model = Blip2ForConditionalGeneration(config)
    with torch.no_grad():
        model.query_tokens.copy_(torch.randn_like(model.query_tokens))
        model.language_projection.weight.mul_(10)
        for key, p in model.named_parameters():
            if "relative_attention_bias" in key:
                p.mul_(4)  # so that it matters
        if text.model_type == "t5":
            model.language_model.lm_head.weight = torch.nn.Parameter(
                torch.randn(VOCABULARY, text.d_model) * 0.2)
    jitter(model, ("norm", "Norm", "bias") if text.model_type == "opt" else
           ("norm", "Norm", "proj.bias", "dense.bias", "qkv.bias", "fc1.bias", "projection.bias"))
    return model


def behind_picture(rows):
    """The same rows with the picture's places before them."""
    return torch.nn.functional.pad(rows, (QUERIES, 0), value=PICTURE)


def write_opt(name, folder):
    model = make_model(name)
    generator = torch.Generator().manual_seed(99)
    text = ragged([15, 6, 15, 9, 2, 12, 15, 8], PICTURE, 2, generator)
    ids = behind_picture(text)
    labels = torch.where(ids == PICTURE, -100, ids)
    labels[1, QUERIES:QUERIES + 2] = -100  # a masked prompt
    pixels = torch.randint(0, 256, (ROWS, SIDE, SIDE, 3), dtype=torch.uint8, generator=generator)
    values = normalised(pixels, OWN)

    def forward(m, rows):
        return m(pixel_values=values[rows], input_ids=ids[rows].clamp(min=0),
                 attention_mask=(ids[rows] >= 0).long(),
                 labels=torch.where(ids[rows] < 0, -100, labels[rows]))

    def next_logits(m, row, tokens):
        return m(pixel_values=values[row:row + 1], input_ids=torch.tensor([tokens])).logits[0, -1]

    write_case(name, model, folder,
               {"input_ids": ids, "labels": torch.where(labels < 0, -100, labels), "pixels": pixels},
               forward, next_logits, ids[:PROMPTS, :QUERIES + 2],
               keep=("query_tokens", "layernorm", "qkv.weight"), ours=lambda key, value: {key: our_value(key, value)})
    (folder / "preprocessor_config.json").write_text(
        json.dumps(dict(OWN, image_processor_type="BlipImageProcessor"), indent=2) + "\n")


def write_t5(name, folder):
    model = make_model(name)
    generator = torch.Generator().manual_seed(99)
    source = behind_picture(ragged([5, 2, 1, 4, 3, 6, 1, 2], PICTURE, 2, generator))
    labels = ragged([11, 7, 5, 12, 4, 3, 11, 9], PICTURE, 2, generator)
    tokens = torch.where(labels < 0, -1, torch.nn.functional.pad(labels, (1, 0))[:, :-1])
    pixels = torch.randint(0, 256, (ROWS, SIDE, SIDE, 3), dtype=torch.uint8, generator=generator)
    values = normalised(pixels, CLIP)

    def forward(m, rows):
        return m(pixel_values=values[rows], input_ids=source[rows].clamp(min=0),
                 attention_mask=(source[rows] >= 0).long(),
                 decoder_input_ids=tokens[rows].clamp(min=0),
                 labels=torch.where(labels[rows] < 0, -100, labels[rows]))

    def next_logits(m, row, ids):
        own = source[row][source[row] >= 0]
        return m(pixel_values=values[row:row + 1], input_ids=own[None],
                 decoder_input_ids=torch.tensor([ids])).logits[0, -1]

    write_case(name, model, folder,
               {"input_ids": tokens, "labels": labels, "source_ids": source, "pixels": pixels},
               forward, next_logits, torch.zeros((PROMPTS, 1), dtype=torch.int32),
               keep=("query_tokens", "layernorm", "qkv.weight"), ours=lambda key, value: {key: our_value(key, value)})


def our_value(key, value):
    """The patches' convolution and the free parameters are matrices here."""
    if key.endswith("patch_embedding.weight"):
        return value.flatten(1)
    return value[0] if value.dim() == 3 else value


def main():
    target = Path(sys.argv[1])
    for name, write in (("blip2-opt", write_opt), ("blip2-t5", write_t5)):
        if len(sys.argv) == 2 or name in sys.argv[2:]:
            write(name, target / name)


if __name__ == "__main__":
    main()
