#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Loads with transformers and peft what `snug finetune` and `snug merge` write of models that also see
pictures (tests/data/language_part): nothing is missing or unknown, other parts are untouched, and base
and adapter in peft compute what the merged model does. To run again whenever the export changes.

Run: python3 whole_readback.py SNUG ../data      (SNUG: the program; torch 2.11, transformers 5, peft 0.21.2)
"""
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from peft import PeftModel
from transformers import AutoModelForImageTextToText

TRAINING = ("--data Synthetic --train.max_steps 3 --train.global_batch_size 2 --max_seq_length 16 "
            "--precision 32-true --optimizer.lr 0.01").split()
# peft does not load adapters of all these experts.
LAYERS = {"gemma4": "q_proj,v_proj", "qwen3_5_moe": "q_proj,v_proj"}


def load(folder):
    model, info = AutoModelForImageTextToText.from_pretrained(
        folder, dtype=torch.float32, output_loading_info=True, attn_implementation="eager")
    for what in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        assert not info[what], (folder, what, info[what])
    return model.eval()


@torch.no_grad()
def logits(model):
    return model(input_ids=torch.arange(5, 25)[None]).logits


def main():
    program, data = sys.argv[1], Path(sys.argv[2])

    def snug(*words):
        subprocess.run([program, *map(str, words)], check=True, capture_output=True)

    for case in sorted((data / "language_part").iterdir()):
        with tempfile.TemporaryDirectory() as temporary:
            source, full, lora = (Path(temporary) / name for name in ("in", "full", "lora"))
            shutil.copytree(case, source, ignore=shutil.ignore_patterns("expected.safetensors"))
            for file in (data / "system" / "tiny").glob("*token*"):
                shutil.copy(file, source)
            snug("finetune_full", source, *TRAINING, "--out_dir", full)
            before, after = load(source).state_dict(), load(full / "final").state_dict()
            trained = {key for key in before if not torch.equal(before[key], after[key])}
            other = {key for key in trained if "language_model" not in key and not key.startswith("lm_head")}
            assert trained and not other, (case, other)
            snug("finetune_lora", source, *TRAINING, "--lora_target_modules", LAYERS.get(case.name, "all-linear"),
                 "--out_dir", lora)
            snug("merge", lora / "final")
            beside = logits(PeftModel.from_pretrained(load(source), lora / "final").eval())
            torch.testing.assert_close(beside, logits(load(lora / "final-merged")), rtol=1e-5, atol=1e-5)
            assert not torch.allclose(beside, logits(load(source)), atol=1e-3), case
            print(case.name, "loads;", len(trained), "tensors trained; adapter and merged model agree")


if __name__ == "__main__":
    main()
