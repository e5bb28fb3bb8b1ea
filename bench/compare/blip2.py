# SPDX-License-Identifier: Apache-2.0
"""Fine-tunes one small BLIP-2 with snug (by its recipe for captions, and without any technique) and
with a plain transformers loop, in turns, and prints a Markdown table of medians and ratios. The
model and the pictures are made by make_blip2.py:

  python3 bench/compare/make_blip2.py out/bench/blip2 out/bench/pictures
  python3 bench/compare/blip2.py --snug build/snug --model out/bench/blip2 --pictures out/bench/pictures
"""

import argparse
import json
import os
import statistics
import sys

import measure

HERE = os.path.dirname(os.path.abspath(__file__))
GIB = 2**30
# What the recipe says of numbers is said again below, so that all programs train alike.
RECIPE = os.path.join(HERE, "../../recipes/captions/full.yaml")
BY_RECIPE = ["--config", os.path.normpath(RECIPE)]
PLAIN = "snug, no technique"


def snug(args, precision, more):
    out = os.path.join(args.out, "blip2")
    command = [
        args.snug, "finetune_full", *more, args.model, "--data", "ImageFolder", "--data.path", args.pictures,
        "--data.val_split_fraction", "0.1", "--precision", precision, "--out_dir", out,
        "--train.micro_batch_size", str(args.batch), "--train.global_batch_size", str(args.batch),
        "--train.max_steps", str(args.warmup + args.steps), "--train.lr_warmup_steps", "0",
        "--optimizer.lr", "2e-5", "--optimizer.weight_decay", "0", "--train.save_model", "false",
        "--eval.num_samples", "0", "--eval.final_validation", "false",
    ]  # fmt: skip
    run = measure.run(command, args.limit_seconds, env={"OMP_NUM_THREADS": str(args.threads)})
    with open(os.path.join(out, "run.json"), encoding="utf-8") as file:
        seconds = [step["seconds"] for step in json.load(file)["steps"]]
    return {"seconds": statistics.median(seconds[args.warmup :]), "bytes": run["peak_rss_bytes"],
            "command": " ".join(command)}


def transformers(args, precision):
    command = [sys.executable, os.path.join(HERE, "blip2_loop.py"), "--model", args.model,
               "--pictures", args.pictures, "--precision", precision, "--batch", str(args.batch),
               "--steps", str(args.steps), "--warmup", str(args.warmup), "--threads", str(args.threads)]
    run = measure.run(command, args.limit_seconds, env={"OMP_NUM_THREADS": str(args.threads)})
    figures = json.loads(run["output"].strip().splitlines()[-1])
    return {"seconds": statistics.median(figures["step_seconds"][args.warmup :]),
            "bytes": run["peak_rss_bytes"], "command": " ".join(command)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--snug", default="build/snug")
    parser.add_argument("--model", required=True)
    parser.add_argument("--pictures", required=True)
    parser.add_argument("--precision", default="32-true,bf16-true")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--limit_seconds", type=int, default=1800)
    parser.add_argument("--out", default="out/bench")
    args = parser.parse_args()
    os.makedirs(args.out, exist_ok=True)
    print("| precision | program | samples/s | peak GiB | speed ÷ transformers' | memory ÷ transformers' |")
    print("|---|---|---:|---:|---:|---:|")
    for precision in args.precision.split(","):
        runs = {"snug": [], "transformers": [], PLAIN: []}
        for _ in range(args.rounds):
            runs["snug"].append(snug(args, precision, BY_RECIPE))
            runs["transformers"].append(transformers(args, precision))
            runs[PLAIN].append(snug(args, precision, []))
        median = {name: {key: statistics.median(run[key] for run in all_runs) for key in ("seconds", "bytes")}
                  for name, all_runs in runs.items()}
        theirs = median["transformers"]
        for name, figures in median.items():
            ratios = "| |" if name == "transformers" else (
                f"{theirs['seconds'] / figures['seconds']:.2f} | {figures['bytes'] / theirs['bytes']:.2f} |")
            print(f"| {precision} | {name} | {args.batch / figures['seconds']:.2f} | "
                  f"{figures['bytes'] / GIB:.2f} | {ratios}", flush=True)
    for name in runs:
        print(f"\n{name}: `{runs[name][0]['command']}`")


if __name__ == "__main__":
    main()
