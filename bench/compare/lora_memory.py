# SPDX-License-Identifier: Apache-2.0
"""Where memory goes in full fine-tuning, LoRA, QLoRA and DoRA of one model, and what a step takes:
runs each for a few steps in turn and prints a Markdown table of the peak by category (the ledger's)
and of the median step. Every row is the same recipe (step.yaml) but for the options in its name."""

import argparse
import json
import os
import statistics
import sys

import measure

HERE = os.path.dirname(os.path.abspath(__file__))
MIB = 2**20
LORA = ["--lora_r", "8", "--lora_alpha", "16"]
ALL = ["--lora_target_modules", "all-linear"]
ROWS = {
    "full": ("finetune_full", []),
    "LoRA": ("finetune_lora", LORA),
    "LoRA, all-linear": ("finetune_lora", LORA + ALL),
    "DoRA, all-linear": ("finetune_lora", [*LORA, *ALL, "--lora_use_dora"]),
    "QLoRA, nf4": ("finetune_lora", [*LORA, "--quantize", "bnb.nf4"]),
    "QLoRA, nf4-dq": ("finetune_lora", [*LORA, "--quantize", "bnb.nf4-dq"]),
    "QLoRA, int8": ("finetune_lora", [*LORA, "--quantize", "bnb.int8"]),
    "QLoRA, nf4, checkpointing": (
        "finetune_lora", [*LORA, "--quantize", "bnb.nf4", "--activation_checkpointing", "all"]),
}
CATEGORIES = ["parameters", "gradients", "optimizer", "activations", "workspace"]


def run(args, name):
    command, options = ROWS[name]
    out_dir = os.path.join(args.out, command)
    words = [args.snug, command, args.model, "--config", os.path.join(HERE, "step.yaml")]
    words += ["--data.json_path", args.long_rows, "--out_dir", out_dir, *options]
    words += ["--train.max_steps", str(args.steps + 1), "--train.lr_warmup_steps", "0"]
    measure.run(words, 3600)
    with open(os.path.join(out_dir, "run.json"), encoding="utf-8") as file:
        return json.load(file)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--snug", default="build/snug")
    parser.add_argument("--model", required=True)
    parser.add_argument("--long_rows", default="out/bench/long.jsonl")
    parser.add_argument("--out", default="out/bench/lora_memory")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=2)
    args = parser.parse_args()
    runs = {name: [] for name in ROWS}
    for _ in range(args.rounds):
        for name in ROWS:
            print(f"==> {name}", file=sys.stderr, flush=True)
            runs[name].append(run(args, name))
    seconds = {
        name: statistics.median(s["seconds"] for run in found for s in run["steps"][1:])
        for name, found in runs.items()
    }
    print("| MiB at the peak | all | " + " | ".join(CATEGORIES) + " | step |")
    print("|---|---:" + "|---:" * (len(CATEGORIES) + 1) + "|")
    for name, found in runs.items():
        measured = found[0]["memory"]["measured"]
        cells = [f"{measured['peak_allocated'] / MIB:.0f}"]
        cells += [f"{measured['by_category'].get(c, 0) / MIB:.0f}" for c in CATEGORIES]
        print(f"| {name} | " + " | ".join(cells) + f" | {seconds[name] / seconds['full']:.2f}× |")


if __name__ == "__main__":
    main()
