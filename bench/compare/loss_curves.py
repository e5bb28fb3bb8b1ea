# SPDX-License-Identifier: Apache-2.0
"""Does 8-bit AdamW learn as 32-bit AdamW does? Fine-tunes the same model on the same rows with both, and
once more with 32-bit states and another order of rows, which shows what a difference means. Prints mean
training losses by stretches of steps and the validation losses as a Markdown table."""

import argparse
import csv
import json
import os
import statistics

import measure

RUNS = [
    ("32-bit states", []),
    ("8-bit states", ["--optimizer", "adamw_8bit"]),
    ("32-bit states, other order of rows", ["--data.init_args.seed", "43", "--seed", "43"]),
]


def run(args, name, options):
    out = os.path.join(args.out, name.replace(" ", "_").replace(",", ""))
    command = [args.snug, "finetune_full", args.model, "--out_dir", out, "--precision", args.precision]
    command += ["--data", "JSON", "--data.json_path", args.rows, "--data.val_path", args.held_out]
    command += ["--data.prompt_style", "chat", "--data.mask_prompt", "true"]
    command += ["--train.micro_batch_size", "8", "--train.global_batch_size", "8"]
    command += ["--train.max_steps", str(args.steps), "--train.epochs", "100", "--train.lr_warmup_steps", "20"]
    command += ["--train.save_interval", "100000", "--eval.interval", "100000", "--eval.num_samples", "0"]
    command += ["--eval.final_validation", "true", *options]
    command += ["--optimizer.lr", args.lr, "--optimizer.weight_decay", "0.0"]
    print(" ".join(command), flush=True)
    measure.run(command, args.limit_seconds)
    with open(os.path.join(out, "metrics.csv"), encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    losses = [float(row["loss"]) for row in rows if row["loss"]]
    with open(os.path.join(out, "run.json"), encoding="utf-8") as file:
        record = json.load(file)
    return losses, record["validation"][-1]["loss"]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--snug", default="build/snug")
    for name in ("model", "rows", "held_out"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--out", default="out/bench/loss_curves")
    parser.add_argument("--precision", default="bf16-mixed")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--stretch", type=int, default=40)
    parser.add_argument("--lr", default="0.00005")
    parser.add_argument("--limit_seconds", type=int, default=3600)
    args = parser.parse_args()
    results = [(name, *run(args, name, options)) for name, options in RUNS]
    ends = range(args.stretch, args.steps + 1, args.stretch)
    print("| | " + " | ".join(f"{end - args.stretch + 1}–{end}" for end in ends) + " | validation |")
    print("|---|" + "---:|" * (len(ends) + 1))
    for name, losses, validation in results:
        means = [statistics.mean(losses[end - args.stretch : end]) for end in ends]
        print(f"| {name} | " + " | ".join(f"{m:.3f}" for m in means) + f" | {validation:.4f} |")
    pairs = [abs(a - b) for a, b in zip(results[0][1], results[1][1])]
    print(f"\nLargest difference of one step's loss between 32-bit and 8-bit: {max(pairs):.4f}")


if __name__ == "__main__":
    main()
