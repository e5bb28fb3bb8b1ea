#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Expected values for importance matrices from transformers: tests/data/parity/input_squares.safetensors
holds, for some models of that folder and all their rows, the mean square of what each column of a
linear layer's weight is multiplied with, in float64, as "<model>/<weight>".

Run: python3 input_squares.py ../data/parity      (torch 2.11, transformers 5, safetensors)
"""
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

MODELS = ["llama", "qwen2", "qwen3", "phi3", "gemma2"]


@torch.no_grad()
def squares(folder):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64, attn_implementation="eager").eval()
    sums = {}

    def watch(name):
        def add(_, inputs):
            x = inputs[0].flatten(0, -2)
            sums.setdefault(name, []).append(x.square().mean(0))
        return add

    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear) and ".layers." in name:
            module.register_forward_pre_hook(watch(name + ".weight"))
    rows = load_file(folder / "expected.safetensors")["input_ids"].long()
    assert (rows >= 0).all()
    for row in rows:  # all of one length
        model(input_ids=row[None])
    return {name: torch.stack(parts).mean(0).float() for name, parts in sums.items()}


if __name__ == "__main__":
    parity = Path(sys.argv[1])
    found = {f"{model}/{name}": value.contiguous() for model in MODELS for name, value in squares(parity / model).items()}
    save_file(found, parity / "input_squares.safetensors")
    print(len(found), "weights")
