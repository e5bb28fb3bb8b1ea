#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Planned times beside published ones: the median error of each source, and how many pairs of its rows come in the
right order. Fitted sources (src/plan/devices/efficiency.cpp) are told apart from the others.

    bench/compare/published_times.py build/snug           # fails if docs/benchmarks.md says something else
    bench/compare/published_times.py build/snug --write   # renews its table
    bench/compare/published_times.py build/snug --rows    # every row

A row of a program that PyTorch runs operator by operator writes more than snug. Where the suite counts that program
(`like`), its bytes are used; else EAGER times snug's.
"""
import argparse
import concurrent.futures
import itertools
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/benchmarks.md"
BEGIN, END = "<!-- published times: begin -->", "<!-- published times: end -->"
# What `snug plan --like transformers` counts for MPT's models on one GPU, over what snug writes: 1.9 to 2.6.
EAGER = 2.05
# Suite, rows of it, what it is called, times snug's bytes. Which are fitted the suites say (time_is_fitted).
SOURCES = [
    ("fsdp-sweep", lambda row: "multinode" not in row, "minGPT, FSDP, 4 V100", 1),
    ("published-mpt-a100", lambda row: True, "MPT, FSDP, 8 A100", EAGER),
    ("published-llmq-4090", lambda row: True, "llmq, 1 and 4 RTX 4090", 1),
    ("published-llmq-h100", lambda row: True, "llmq, 1 and 8 H100", 1),
    ("published-mpt-h100", lambda row: "gpu" not in row, "MPT, FSDP, 8 H100", EAGER),
    ("published-mpt-h100", lambda row: "gpu" in row, "MPT, FSDP, 16 to 64 H100", EAGER),
    ("published-surogate", lambda row: row.startswith("h"), "Surogate, LoRA, H100 and H200", 1),
    ("published-surogate", lambda row: row.startswith("rtx"), "Surogate, LoRA, RTX 5090", 1),
    ("published-torchtune", lambda row: True, "torchtune, RTX 4090", 1),
    ("published-torchtitan", lambda row: True, "torchtitan, 8 H100 and 64 A100", EAGER),
    ("litgpt-multi", lambda row: "1gpu" in row, "LitGPT, 1 A100", 1),
    ("litgpt-multi", lambda row: "1gpu" not in row, "LitGPT, DDP and FSDP, 4 A100", 1),
    ("litgpt-v100", lambda row: True, "LitGPT, 1 and 4 V100", 1),
    ("fsdp-sweep", lambda row: "multinode" in row, "minGPT, FSDP, 1 to 4 machines of V100", 1),
]
COMPILED = {"h100-8b-compiled"}


def run(snug, words, cache):
    done = subprocess.run([snug, *words], cwd=ROOT, capture_output=True, text=True,
                          env={**os.environ, "SNUG_CACHE": cache})
    if "{" not in done.stdout:
        sys.exit(f"{' '.join(words)}\n{done.stderr}")
    return json.loads(done.stdout[done.stdout.index("{"):]), done.returncode


def times_of(snug, suite, cache):
    """(id, published, planned, command, whether it was fitted) of each row with a published time."""
    words = ["lab", "run", suite, "--plan", "--rows", "*", "--out_dir", f"{cache}/{suite}", "--json"]
    report, exit_code = run(snug, words, cache)
    if exit_code != 0:
        sys.exit(f"snug {' '.join(words)}: exit code {exit_code}; 4 is a difference that the suite does not explain")
    for row in report["rows"]:
        for figure in row["published"] or []:
            if figure["unit"] == "seconds" and figure["compared"]:
                yield row["id"], figure["published"], figure["compared"], row["command"], figure["fitted"]


def eager(snug, command, factor, cache):
    time = run(snug, [*command.split()[1:], "--json"], cache)[0]["time"]
    return (factor - 1) * time["activations_seconds"]


def planned(snug):
    """Per source: its rows as (id, published, planned, whether it was fitted)."""
    with tempfile.TemporaryDirectory() as cache, concurrent.futures.ThreadPoolExecutor(2) as pool:
        suites = {}
        for suite, chosen, _, factor in SOURCES:
            if suite not in suites:
                suites[suite] = list(times_of(snug, suite, cache))
            rows = [row for row in suites[suite] if chosen(row[0])]
            slow = [row for row in rows if factor > 1 and row[0] not in COMPILED]
            more = dict(zip((row[0] for row in slow), pool.map(lambda row: eager(snug, row[3], factor, cache), slow)))
            yield [(name, published, seconds + more.get(name, 0), fitted) for name, published, seconds, _, fitted in rows]


def ordered(rows):
    pairs = [(a, b) for a, b in itertools.combinations(rows, 2) if a[1] != b[1]]
    return sum((a[1] < b[1]) == (a[2] < b[2]) for a, b in pairs), len(pairs)


def errors(rows):
    return [abs(row[2] / row[1] - 1) for row in rows]


def is_fitted(rows):
    said = {row[3] for row in rows}
    assert len(said) == 1, f"fitted and not: {rows}"
    return said.pop()


def table(by_source):
    lines = ["| source | fitted | rows | median error | largest | pairs in order |", "|---|---|---:|---:|---:|---:|"]
    for (_, _, title, _), rows in zip(SOURCES, by_source):
        fitted = is_fitted(rows)
        right, pairs = ordered(rows)
        off = max((row[2] / row[1] - 1 for row in rows), key=abs)
        lines.append(f"| {title} | {'yes' if fitted else 'no'} | {len(rows)} | {100 * statistics.median(errors(rows)):.0f} % "
                     f"| {100 * off:+.0f} % | {right} of {pairs} |")
    for fitted in (True, False):
        mine = [rows for rows in by_source if is_fitted(rows) == fitted]
        right, pairs = (sum(numbers) for numbers in zip(*map(ordered, mine)))
        every = [error for rows in mine for error in errors(rows)]
        medians = statistics.median(statistics.median(errors(rows)) for rows in mine)
        lines.append(f"| **all that are {'' if fitted else 'not '}fitted** | | {len(every)} "
                     f"| {100 * statistics.median(every):.0f} % of rows, {100 * medians:.0f} % of sources | "
                     f"| {right} of {pairs}, {100 * right / pairs:.0f} % |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("snug")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--rows", action="store_true")
    options = parser.parse_args()
    by_source = list(planned(os.path.abspath(options.snug)))
    if options.rows:
        for source, rows in zip(SOURCES, by_source):
            for name, published, seconds, _ in rows:
                print(f"{source[2]:40} {name:26} {published:9.3f} s {seconds:9.3f} s {100 * (seconds / published - 1):+6.0f} %")
    text, page = table(by_source), PAGE.read_text()
    before, rest = page.split(BEGIN)
    said, after = rest.split(END)
    if options.write:
        PAGE.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}")
    print(text)
    if not options.write and said.strip() != text:
        sys.exit(f"{PAGE.name} says something else; renew it with --write")


if __name__ == "__main__":
    main()
