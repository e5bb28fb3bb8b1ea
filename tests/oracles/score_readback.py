#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Loads with transformers and peft what snug writes of classifiers and reward models, in six families, and
checks that nothing is missing or unknown and that texts, padded to one batch, get the scores that
`snug evaluate --scores_file` gives them. To run again whenever such an export changes.

Run: python3 score_readback.py SNUG ../data    (SNUG: the program; torch 2.11, transformers 5, peft 0.21)
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

os.environ.update(HF_HUB_OFFLINE="1", CUDA_VISIBLE_DEVICES="")

import torch  # noqa: E402
from peft import PeftModel  # noqa: E402
from transformers import AutoModelForSequenceClassification, AutoTokenizer  # noqa: E402

FAMILIES = ["llama", "gpt2", "gpt-neox", "opt", "gemma2", "qwen3"]
ROWS = [{"text": word * (2 + i), "label": label}
        for i, (word, label) in enumerate([("ab", "good"), ("xyz ", "bad"), ("q", "good"), ("0 1 ", "so"),
                                           ("zz", "bad"), ("hello ", "so")])]


def snug(program, *words):
    done = subprocess.run([program, *map(str, words)], capture_output=True, text=True)
    assert done.returncode == 0, (words, done.stdout, done.stderr)


def make_base(program, family, data, folder):
    """A language model with random weights of the family's shape, for the small tokenizer."""
    tiny, config = data / "system/tiny", folder / "config.json"
    shape = json.loads((data / "parity" / family / "config.json").read_text())
    shape["vocab_size"] = 304
    for token in ("bos_token_id", "eos_token_id", "pad_token_id"):
        shape.pop(token, None)
    config.write_text(json.dumps(shape))
    rows = folder / "answers.jsonl"
    rows.write_text("".join(json.dumps({"instruction": "say", "output": "a" * i}) + "\n" for i in range(1, 9)))
    train(program, "finetune_full", tiny, rows, folder / "lm", "sft", "--model.config", config)
    return folder / "lm/final"


def train(program, command, model, rows, out, objective, *more):
    snug(program, command, model, "--data.json_path", rows, "--data.prompt_style", "plain", "--objective", objective,
         "--out_dir", out, "--precision", "32-true", "--train.max_steps", "3", "--train.global_batch_size", "2",
         "--train.micro_batch_size", "2", "--eval.num_samples", "0", "--optimizer.lr", "1e-2", *more)


def ours(program, model, rows, folder):
    out = folder / "scores.jsonl"
    out.unlink(missing_ok=True)
    snug(program, "evaluate", model, "--data.json_path", rows, "--precision", "32-true", "--scores_file", out)
    return sorted((json.loads(line) for line in out.read_text().splitlines()), key=lambda row: row["row"])


@torch.no_grad()
def theirs(model, folder, texts):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    assert model.config.pad_token_id == tokenizer.pad_token_id
    inputs = tokenizer(texts, padding=True, return_tensors="pt")
    return model.eval()(input_ids=inputs.input_ids, attention_mask=inputs.attention_mask).logits


def load(folder, **more):
    model, info = AutoModelForSequenceClassification.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True, **more)
    if not more:
        for what in ("missing_keys", "unexpected_keys", "mismatched_keys"):
            assert not info[what], (folder, what, info[what])
    return model


def compare(name, found, wanted):
    worst = (found - wanted).abs().max().item() / wanted.abs().max().item()
    print(f"{name}: differs by {worst:.1e}")
    assert worst < 1e-5, name


def main():
    program, data = sys.argv[1], Path(sys.argv[2])
    for family in FAMILIES:
        with tempfile.TemporaryDirectory() as made:
            folder = Path(made)
            base = make_base(program, family, data, folder)
            rows, pairs = folder / "rows.jsonl", folder / "pairs.jsonl"
            rows.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
            pairs.write_text("".join(json.dumps({"prompt": row["text"], "chosen": "yes", "rejected": "no" * i}) + "\n"
                                     for i, row in enumerate(ROWS, 1)))
            texts = [row["text"] for row in ROWS]
            train(program, "finetune_full", base, rows, folder / "full", "classification")
            model = load(folder / "full/final")
            names = [model.config.id2label[i] for i in range(model.config.num_labels)]
            assert names == ["bad", "good", "so"] and model.config.label2id["so"] == 2
            scores = [[row["scores"][name] for name in names] for row in ours(program, folder / "full/final", rows, folder)]
            compare(f"{family}, a classifier", theirs(model, folder / "full/final", texts), torch.tensor(scores))
            train(program, "finetune_lora", base, rows, folder / "lora", "classification")
            adapter = folder / "lora/final"
            scores = [[row["scores"][name] for name in names] for row in ours(program, adapter, rows, folder)]
            model = load(base, num_labels=3)
            tokenizer = AutoTokenizer.from_pretrained(adapter)
            model.config.pad_token_id = tokenizer.pad_token_id or tokenizer.eos_token_id
            compare(f"{family}, an adapter", theirs(PeftModel.from_pretrained(model, adapter), adapter, texts),
                    torch.tensor(scores))
            snug(program, "merge", adapter, "--out_dir", folder / "merged")
            compare(f"{family}, merged", theirs(load(folder / "merged"), folder / "merged", texts), torch.tensor(scores))
            train(program, "finetune_full", base, pairs, folder / "reward", "reward")
            model = load(folder / "reward/final")
            assert model.config.num_labels == 1
            scored = ours(program, folder / "reward/final", pairs, folder)
            ends = AutoTokenizer.from_pretrained(folder / "reward/final").eos_token or ""
            texts = [row["text"] + "yes" + ends for row in ROWS]
            compare(f"{family}, a reward model", theirs(model, folder / "reward/final", texts).flatten(),
                    torch.tensor([row["chosen"] for row in scored]))
            shutil.rmtree(folder / "lm")


if __name__ == "__main__":
    main()
