#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""bookings.py SUITE... [--students N] [--gpus N] [--group N] [--block HOURS] [--device NAME]

What a class needs of a machine: for each suite the planned time of its rows (steps by the planned time of one), and how
many blocks of the machine that is for all students, alone on a GPU and in groups. Nothing is trained; snug is asked.
Planned is training alone: not a server's start, downloads, loading, nor rows that run out of memory, which end at once.
"""
import argparse
import json
import math
import re
import subprocess
import tempfile

ALPACA2K = 2000  # rows of the set that LitGPT's recipes name


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suites", nargs="+")
    parser.add_argument("--students", type=int, default=40)
    parser.add_argument("--gpus", type=int, default=4, help="GPUs of the machine")
    parser.add_argument("--group", type=int, default=4, help="students who share a block on several GPUs")
    parser.add_argument("--block", type=float, default=2.0, help="hours of a block")
    parser.add_argument("--device", help="instead of the suite's")
    chosen = parser.parse_args()
    print(f"{'suite':14} {'rows':>4} {'out of memory':>13} {'steps':>6} {'planned':>9} {'longest row':>11}  {'blocks of the machine'}")
    for suite in chosen.suites:
        rows = planned(suite, chosen.device)
        several = max(row["ranks"] for row in rows) > 1
        blocks = math.ceil(chosen.students / chosen.group) if several else math.ceil(chosen.students / chosen.gpus)
        how = f"{chosen.group} students a block" if several else f"{chosen.gpus} students at a time, one GPU each"
        print(f"{suite:14} {len(rows):4} {sum(row['out_of_memory'] for row in rows):13} {sum(row['steps'] for row in rows):6} "
              f"{sum(row['seconds'] for row in rows) / 60:5.1f} min {max(row['seconds'] for row in rows) / 60:7.1f} min  "
              f"{blocks} of {chosen.block:g} h = {blocks * chosen.block:g} h: {how}")


def snug(*words):
    return subprocess.run(["snug", *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True).stdout


def planned(suite, device):
    listed = {row["id"]: row for row in json.loads(snug("lab", "list", suite, "--json"))["rows"]}
    with tempfile.TemporaryDirectory() as folder:
        words = ["lab", "run", suite, "--plan", "--rows", ",".join(listed), "--out_dir", folder]
        subprocess.run(["snug", *words, *(["--device", device] if device else [])], stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL, check=False)  # rows that differ from the published ones are no error here
        with open(folder + "/report.json", encoding="utf-8") as file:
            report = json.load(file)
    rows = []
    for row in report["rows"]:
        if row["id"] not in listed:
            continue
        out = row["outcome"] != "ok"
        steps = 0 if out else steps_of(listed[row["id"]])
        rows.append({"ranks": row["world_size"], "out_of_memory": out, "steps": steps,
                     "seconds": 0 if out else steps * row["predicted"]["step_seconds"]})
    return rows


def steps_of(row):
    words = [word for key, value in row["options"] for word in (f"--{key}", value)]
    printed = snug(row["command"], *words, "--print_config")
    recipe = dict(re.findall(r"^ *(\w+): (\d\S*)$", printed, re.M))  # what has a number
    samples = ALPACA2K if "class_path: Alpaca2k" in printed else int(recipe.get("max_samples", 0))
    training = samples * (1 - float(recipe.get("val_split_fraction", 0)))
    steps = int(recipe["epochs"]) * int(training // int(recipe["global_batch_size"]))
    limit = int(recipe.get("max_steps", steps))
    return min(steps, limit) if steps else limit


if __name__ == "__main__":
    main()
