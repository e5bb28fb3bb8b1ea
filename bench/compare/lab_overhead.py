# SPDX-License-Identifier: Apache-2.0
"""What watching costs a run: seconds of an optimizer step of one scaled row, run through snug lab (a process group,
its output kept, live status read) and by its own command alone, in pairs that change their order. Prints a line a
pair and the median of their ratios.

    python3 bench/compare/lab_overhead.py --snug build/snug --suite litgpt-single --row ls03-tiny-accumulate
"""

import argparse
import json
import os
import shlex
import statistics
import subprocess
import tempfile


def step_seconds(out_dir):
    """Median of a run's steps behind the first ones, which warm up."""
    with open(os.path.join(out_dir, "run.json"), encoding="utf-8") as file:
        record = json.load(file)
    if record["outcome"] != "ok":
        raise SystemExit(f"{out_dir}: the run ended as {record['outcome']}: {record['reason']}")
    steps = record["steps"][5:]
    if len(steps) < 20:
        raise SystemExit(f"{out_dir}: {len(steps)} steps are too few for a median; give more --steps")
    return statistics.median(step["seconds"] for step in steps)


def run(words):
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{shlex.join(words)}\nended with {done.returncode}:\n{done.stderr[-2000:]}")


def through_lab(args, folder):
    words = [args.snug, "lab", "run", args.suite, "--scaled", "--rows", args.row, "--restart"]
    words += ["--out_dir", folder, "--row_timeout", "3600", "--set", f"train.max_steps={args.steps}"]
    words += ["--set", "train.epochs=100000"]  # the steps end it, not the data
    for setting in args.set:
        words += ["--set", setting]
    run(words)
    row = os.path.join(folder, "rows", args.row)
    with open(os.path.join(row, "row.json"), encoding="utf-8") as file:
        command = json.load(file)["command"]
    return step_seconds(os.path.join(row, "run")), command


def alone(args, command, folder):
    """The row's own command as the report prints it, into another folder."""
    words = [args.snug, *shlex.split(command)[1:]]
    words[words.index("--out_dir") + 1] = folder
    run(words)
    return step_seconds(folder)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--snug", default="build/snug")
    parser.add_argument("--suite", default="litgpt-single")
    parser.add_argument("--row", default="ls03-tiny-accumulate")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--set", action="append", default=[], help="KEY=VALUE for the row, as of snug lab run")
    args = parser.parse_args()
    ratios = []
    with tempfile.TemporaryDirectory() as folder:
        lab, own = os.path.join(folder, "lab"), os.path.join(folder, "alone")
        _, command = through_lab(args, lab)  # warms the disk's cache, and says the command
        for pair in range(args.pairs):
            if pair % 2 == 0:
                watched, by_itself = through_lab(args, lab)[0], alone(args, command, own)
            else:
                by_itself, watched = alone(args, command, own), through_lab(args, lab)[0]
            ratios.append(watched / by_itself)
            print(f"{1e3 * watched:8.2f} ms through the lab {1e3 * by_itself:8.2f} ms alone   {ratios[-1]:.4f}", flush=True)
    print(f"median {statistics.median(ratios):.4f}, from {min(ratios):.4f} to {max(ratios):.4f}, of {len(ratios)} pairs")


if __name__ == "__main__":
    main()
