# SPDX-License-Identifier: Apache-2.0
"""Every memory technique of snug against plain execution, one run after another, `rounds` times over:
peak memory as planned and as measured, on the device and on the host beside it, and seconds a step.
Prints a Markdown table of medians. Same model, batch and data throughout."""

import argparse
import json
import os
import statistics
import sys

import measure

HERE = os.path.dirname(os.path.abspath(__file__))
GIB = 2**30

ROWS = [
    ("plain", ""),
    ("activation checkpointing, all blocks", "--activation_checkpointing all"),
    ("… every second block", "--activation_checkpointing every:2"),
    ("… selective", "--activation_checkpointing selective"),
    ("activation offload", "--activation_offload"),
    ("optimizer in backward", "--optimizer_in_backward"),
    ("8-bit AdamW", "--optimizer adamw_8bit"),
    ("Lion", "--optimizer lion --optimizer.lr 0.000005"),
    ("Adafactor", "--optimizer adafactor --optimizer.lr 0.001"),
    ("SGD", "--optimizer SGD"),
    ("optimizer offload", "--optimizer_offload cpu"),
    ("… and weight streaming", "--optimizer_offload cpu --weight_streaming"),
    (
        "checkpointing, in backward, 8-bit AdamW",
        "--activation_checkpointing all --optimizer_in_backward --optimizer adamw_8bit",
    ),
    (
        "checkpointing, all offloads",
        "--activation_checkpointing all --activation_offload --optimizer_offload cpu --weight_streaming",
    ),
]


def run(args, options):
    command = [args.snug, "finetune_full", args.model, "--config", os.path.join(HERE, "step.yaml")]
    command += ["--out_dir", args.out, "--precision", args.precision]
    command += ["--data.json_path", args.long_rows, "--train.max_seq_length", str(args.tokens)]
    command += ["--train.micro_batch_size", str(args.batch), "--train.global_batch_size", str(args.batch)]
    command += ["--train.max_steps", str(args.steps + 1), *options.split()]
    measure.run(command, args.limit_seconds)
    with open(os.path.join(args.out, "run.json"), encoding="utf-8") as file:
        record = json.load(file)
    phases = record["memory"]["phases"]
    return {
        "seconds": statistics.median(step["seconds"] for step in record["steps"][1:]),
        "planned": record["memory"]["predicted"]["peak_allocated"],
        "measured": record["memory"]["measured"]["peak_allocated"],
        "host": max(phase["optimizer_host"] for phase in phases),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--snug", default="build/snug")
    parser.add_argument("--model", required=True)
    parser.add_argument("--long_rows", required=True)
    parser.add_argument("--out", default="out/bench/techniques")
    parser.add_argument("--precision", default="bf16-true")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--limit_seconds", type=int, default=900)
    args = parser.parse_args()
    results = {name: [] for name, _ in ROWS}
    for _ in range(args.rounds):
        for name, options in ROWS:
            print(f"==> {name}", file=sys.stderr, flush=True)
            results[name].append(run(args, options))
    plain = statistics.median(r["seconds"] for r in results["plain"])
    base = results["plain"][0]["measured"]
    print("| technique | options | peak GiB | planned | saves | s/step | time × |")
    print("|---|---|---:|---:|---:|---:|---:|")
    for name, options in ROWS:
        seconds = statistics.median(r["seconds"] for r in results[name])
        r = results[name][0]
        print(
            f"| {name} | `{options}` | {r['measured'] / GIB:.3f} | {r['planned'] / GIB:.3f} "
            f"| {100 * (1 - r['measured'] / base):.0f} % | {seconds:.2f} | {seconds / plain:.2f} |"
        )


if __name__ == "__main__":
    main()
