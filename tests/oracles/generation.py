#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Expected token ids for tests/parity/generation_parity_test.cpp: what transformers' generate()
makes of the small random models that the other parity oracles wrote.

Run: python3 generation.py ../data/parity [case…]      (torch 2.11, transformers 5)
Writes <case>/generation.json: {"prompts": [[id…]…], "end_ids": [id…], "cases": [{"options": {…},
"ids": [[id…]…]}…]}; ids are the new ones, without the one that ended them. Where a model reads
pictures (expected.safetensors has "pixels"), prompt i goes with picture i.
"""
import json
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file
from transformers import (AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoConfig,
                          Blip2ForConditionalGeneration)

OPTIONS = [dict(num_beams=1)]
OPTIONS += [dict(num_beams=beams, length_penalty=penalty)
            for beams in (3, 5) for penalty in (0.6, 1.0, 2.0)]
OPTIONS += [
    dict(num_beams=3, early_stopping=True),
    dict(num_beams=4, early_stopping="never", length_penalty=2.0),
    dict(num_beams=1, repetition_penalty=1.5),
    dict(num_beams=3, repetition_penalty=1.5),
    dict(num_beams=1, no_repeat_ngram_size=2),
    dict(num_beams=3, no_repeat_ngram_size=2, min_new_tokens=8),
    dict(num_beams=1, min_new_tokens=10),
]
PROMPTS, LENGTH, NEW = 3, 5, 16
CLIP = dict(image_mean=[0.48145466, 0.4578275, 0.40821073],
            image_std=[0.26862954, 0.26130258, 0.27577711])


def open_model(folder):
    config = AutoConfig.from_pretrained(folder)
    if config.model_type == "blip-2":
        kind = Blip2ForConditionalGeneration
    elif config.is_encoder_decoder:
        kind = AutoModelForSeq2SeqLM
    else:
        kind = AutoModelForCausalLM
    return kind.from_pretrained(folder, dtype=torch.float32).eval()


def inputs_of(model, folder):
    config = model.config
    text = getattr(config, "text_config", config)
    draw = torch.Generator().manual_seed(5)
    ids = torch.randint(3, text.vocab_size - 3, (PROMPTS, LENGTH), generator=draw)
    inputs = {"input_ids": ids}
    if config.model_type == "blip-2":
        pixels = load_file(folder / "expected.safetensors")["pixels"][:PROMPTS]
        how = json.loads((folder / "preprocessor_config.json").read_text()) if (
            folder / "preprocessor_config.json").exists() else CLIP
        values = (pixels.float() / 255 - torch.tensor(how["image_mean"])) / torch.tensor(
            how["image_std"])
        inputs["pixel_values"] = values.permute(0, 3, 1, 2).contiguous()
        places = torch.full((len(pixels), config.num_query_tokens), config.image_token_index)
        inputs["input_ids"] = torch.cat([places, ids[:len(pixels)]], dim=1)
    return inputs


def generate(model, inputs, end_ids, **options):
    ids = inputs["input_ids"]
    with torch.no_grad():
        rows = model.generate(**inputs, attention_mask=torch.ones_like(ids), do_sample=False,
                              max_new_tokens=NEW, eos_token_id=end_ids, pad_token_id=0, **options)
    decoder = model
    if model.config.model_type == "blip-2":
        decoder = model.language_model
    begin = 1 if decoder.config.is_encoder_decoder else ids.shape[1]
    made = []
    for row in rows[:, begin:].tolist():
        ends = [i for i, token in enumerate(row) if token in end_ids]
        made.append(row[:ends[0]] if ends else row)
    return made


def main():
    root = Path(sys.argv[1])
    names = sys.argv[2:] or [path.parent.name for path in root.glob("*/generation.json")]
    for name in names:
        model = open_model(root / name)
        inputs = inputs_of(model, root / name)
        unused = [10**6]
        free = generate(model, inputs, unused, num_beams=1)
        # Tokens that the likeliest texts hold, so that some end early and some do not.
        end_ids = sorted({free[0][4], free[1][9]})
        cases = [{"options": options, "ids": generate(model, inputs, end_ids, **options)}
                 for options in OPTIONS]
        lengths = [len(ids) for case in cases for ids in case["ids"]]
        print(name, "end ids", end_ids, "lengths", lengths)
        with open(root / name / "generation.json", "w") as file:
            json.dump({"prompts": inputs["input_ids"].tolist(), "end_ids": end_ids,
                       "cases": cases}, file)
            file.write("\n")


main()
