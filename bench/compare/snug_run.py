# SPDX-License-Identifier: Apache-2.0
"""Runs `snug finetune_full` (or another command that trains) and reads the figures out of its run.json. Prints one line of JSON.
Speed is that of the steps after the warm-up ones: their real tokens over their seconds."""

import argparse
import json
import os
import statistics

import measure


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--snug", default="build/snug")
    parser.add_argument("--command", default="finetune_full")
    parser.add_argument("--model", required=True)
    parser.add_argument("--config", required=True)
    parser.add_argument("--out_dir", required=True)
    parser.add_argument("--warmup", type=int, default=1, help="steps left out")
    parser.add_argument("--limit_seconds", type=int, default=3600)
    args, options = parser.parse_known_args()

    command = [args.snug, args.command, args.model, "--config", args.config]
    command += ["--out_dir", args.out_dir, *options]
    result = measure.run(command, args.limit_seconds)
    with open(os.path.join(args.out_dir, "run.json"), encoding="utf-8") as file:
        run = json.load(file)
    steps = run["steps"][args.warmup :]
    rates = [step["tokens"] / step["seconds"] for step in steps]
    print(json.dumps({
        "program": f"snug {args.command}",
        "command": " ".join(command),
        "tokens_per_second": sum(s["tokens"] for s in steps) / sum(s["seconds"] for s in steps),
        "median_tokens_per_second": statistics.median(rates),
        "step_seconds": [step["seconds"] for step in run["steps"]],
        "losses": [step["loss"] for step in run["steps"]],
        "peak_rss_bytes": result["peak_rss_bytes"],
        "validation_loss": run["validation"][-1]["loss"] if run.get("validation") else None,
        "seconds_total": result["seconds"],
    }))


if __name__ == "__main__":
    main()
