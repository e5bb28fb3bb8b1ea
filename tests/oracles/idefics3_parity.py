#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Expected values for tests/parity from transformers: small random models of Idefics3 and SmolVLM,
in float32. What a case consists of: parity_case.py. Each row has another number of pictures among
its text, none in one; they are stored as bytes, those of a row in order with zeros behind them.

Run: python3 idefics3_parity.py ../data/parity [CASE …]      (torch 2.11, transformers 5, safetensors)
"""
import sys
from pathlib import Path

import torch
from parity_case import jitter, write_case
from transformers import (Idefics3Config, Idefics3ForConditionalGeneration, LlamaConfig, SmolVLMConfig,
                          SmolVLMForConditionalGeneration)

VOCABULARY, PICTURE = 96, 95
# A picture is four patches wide, and two pixels beyond them are not looked at.
SIDE, PATCH, SCALE = 14, 3, 2
TOKENS = (SIDE // PATCH // SCALE) ** 2
VISION = dict(hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=2,
              image_size=SIDE, patch_size=PATCH, attention_dropout=0.1, initializer_range=0.2)
TEXT = dict(vocab_size=VOCABULARY, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128,
            initializer_range=0.2, bos_token_id=2, eos_token_id=2, pad_token_id=None)
CASES = {
    "idefics3": (Idefics3ForConditionalGeneration, Idefics3Config, dict(tie_word_embeddings=False)),
    "smolvlm": (SmolVLMForConditionalGeneration, SmolVLMConfig, dict(tie_word_embeddings=True)),
}
# Each row's pictures between its texts, and the lengths of the texts.
PICTURES = [[1], [1, 1], [], [3], [2], [1, 0, 1], [1], [2, 1]]
TEXTS = [[4, 7], [2, 1, 6], [9], [3, 8], [0, 5], [5, 1, 2, 6], [1, 9], [2, 3, 4]]
PROMPTS, PROMPT = 2, 12


def make_model(name):
    torch.manual_seed(1234)
    make, config_of, options = CASES[name]
    config = config_of(vision_config=dict(VISION), image_token_id=PICTURE, scale_factor=SCALE, **options,
                       text_config=LlamaConfig(**TEXT, tie_word_embeddings=options["tie_word_embeddings"]))
    config._attn_implementation = "eager"
    model = make(config)
    with torch.no_grad():
        for key, p in model.named_parameters():
            if p.dim() > 1:
                p.copy_(torch.randn_like(p) * 0.2)  # the classes' own would be too small to matter
    jitter(model, ("norm", "bias"))
    return model


def rows_of(generator):
    rows = []
    for pictures, texts in zip(PICTURES, TEXTS):
        row = []
        for i, length in enumerate(texts):
            row += torch.randint(2, PICTURE, (length,), generator=generator).tolist()
            row += [PICTURE] * TOKENS * (pictures[i] if i < len(pictures) else 0)
        rows.append(row)
    ids = torch.full((len(rows), max(map(len, rows))), -1)
    for row, own in enumerate(rows):
        ids[row, :len(own)] = torch.tensor(own)
    return ids


def write(name, folder):
    model = make_model(name)
    generator = torch.Generator().manual_seed(99)
    ids = rows_of(generator)
    labels = torch.where((ids == PICTURE) | (ids < 0), -100, ids)
    labels[1, :2] = -100  # a masked prompt
    most = max(map(sum, PICTURES))
    pixels = torch.randint(0, 256, (len(ids), most, SIDE, SIDE, 3), dtype=torch.uint8, generator=generator)
    values = ((pixels.float() / 255 - 0.5) / 0.5).permute(0, 1, 4, 2, 3).contiguous()
    for row, pictures in enumerate(PICTURES):
        values[row, sum(pictures):] = 0  # which the model takes for none

    def forward(m, rows):
        return m(pixel_values=values[rows], input_ids=ids[rows].clamp(min=0),
                 attention_mask=(ids[rows] >= 0).long(), labels=labels[rows])

    def next_logits(m, row, tokens):
        return m(pixel_values=values[row:row + 1], input_ids=torch.tensor([tokens])).logits[0, -1]

    write_case(name, model, folder, {"input_ids": ids, "labels": labels, "pixels": pixels}, forward, next_logits,
               ids[:PROMPTS, :PROMPT], keep=("norm", "q_proj", "proj.weight", "embed"),
               ours=lambda key, value: {key: value.flatten(1) if "patch_embedding.weight" in key else value})


def main():
    target = Path(sys.argv[1])
    for name in CASES:
        if len(sys.argv) == 2 or name in sys.argv[2:]:
            write(name, target / name)


if __name__ == "__main__":
    main()
