#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Loads with transformers what `snug convert` writes of each model in tests/data/parity, and checks that
nothing is missing or unknown, that it computes the same logits to the bit, and that its config says
the same. To run again whenever a family's export changes.

Run: python3 exports_readback.py SNUG ../data      (SNUG: the program; torch 2.11, transformers 5)
"""
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText, AutoModelForSeq2SeqLM

AUTO = {"t5": AutoModelForSeq2SeqLM, "blip-2": AutoModelForImageTextToText}
ONLY_WRITTEN = {"_name_or_path", "dtype", "torch_dtype", "architectures", "transformers_version",
                "eos_token_id", "bos_token_id", "_commit_hash", "attn_implementation"}


def load(folder):
    kind = AUTO.get(AutoConfig.from_pretrained(folder).model_type, AutoModelForCausalLM)
    model, info = kind.from_pretrained(folder, dtype=torch.float32, output_loading_info=True)
    for what in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        assert not info[what], (folder, what, info[what])
    return model.eval()


@torch.no_grad()
def logits(model):
    ids = torch.arange(3, 20)[None] % 90
    if model.config.model_type == "blip-2":
        side = model.config.vision_config.image_size
        ids[0, : model.config.num_query_tokens] = model.config.image_token_id
        pixels = torch.linspace(-1, 1, 3 * side * side).view(1, 3, side, side)
        return model(pixel_values=pixels, input_ids=ids, attention_mask=torch.ones_like(ids),
                     decoder_input_ids=ids[:, -5:]).logits
    if model.config.is_encoder_decoder:
        return model(input_ids=ids, decoder_input_ids=ids[:, :5]).logits
    return model(input_ids=ids).logits


def differences(ours, theirs, where=""):
    for key in set(ours) | set(theirs):
        a, b = ours.get(key), theirs.get(key)
        if key in ONLY_WRITTEN or a == b:
            continue
        if isinstance(a, dict) and isinstance(b, dict):
            yield from differences(a, b, where + key + ".")
        else:
            yield f"{where}{key}: {a} for {b}"


def main():
    program, data = sys.argv[1], Path(sys.argv[2])
    for case in sorted(p.parent for p in (data / "parity").glob("*/config.json")):
        with tempfile.TemporaryDirectory() as temporary:
            source, target = Path(temporary) / "in", Path(temporary) / "out"
            shutil.copytree(case, source)
            for file in (data / "system" / "tiny").glob("*token*"):
                shutil.copy(file, source)
            subprocess.run([program, "convert", str(source), str(target), "--to", "hf", "--dtype", "float32"],
                           check=True, capture_output=True)
            before, after = load(case), load(target)
            assert torch.equal(logits(before), logits(after)), case
            other = list(differences(after.config.to_dict(), before.config.to_dict()))
            print(case.name, "loads and computes the same" + ("; " + "; ".join(other) if other else ""))


if __name__ == "__main__":
    main()
