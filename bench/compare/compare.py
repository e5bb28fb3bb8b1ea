# SPDX-License-Identifier: Apache-2.0
"""Measures snug against its peers on this machine, alternately, so that both meet the same weather,
and prints a Markdown table of medians and ratios with the commands that repeat them.

The cases: `step` (batch x tokens against a plain transformers loop and against the bare matrix
products) and `lora` (the same with adapters of rank 8 on q and v, against peft), each in each
precision; `qlora` (over NF4 weights, against bitsandbytes), `litgpt` (the same recipe and rows),
`length` (snug's tokens/s at growing lengths of a micro-batch). All results go to OUT/results.json.
"""

import argparse
import datetime
import json
import os
import statistics
import subprocess
import sys

import measure

HERE = os.path.dirname(os.path.abspath(__file__))
GIB = 2**30


def script(name):
    return [sys.executable, os.path.join(HERE, name)]


def split_rows(path, folder, held_out=40):
    """The rows as a folder with train.jsonl and val.jsonl: each program draws a split of its own
    from one file, and losses over different rows cannot be compared."""
    os.makedirs(folder, exist_ok=True)
    with open(path, encoding="utf-8") as file:
        lines = file.readlines()
    for name, part in (("train", lines[held_out:]), ("val", lines[:held_out])):
        with open(os.path.join(folder, f"{name}.jsonl"), "w", encoding="utf-8") as out:
            out.writelines(part)
    return folder


class Bench:
    def __init__(self, args):
        self.args = args
        self.results = []

    def measured(self, case, program, command):
        """Runs one command that prints a line of JSON last; keeps and returns its figures."""
        print(f"==> {case}: {' '.join(command)}", file=sys.stderr, flush=True)
        threads = str(self.args.threads)
        run = measure.run(command, self.args.limit_seconds, env={"OMP_NUM_THREADS": threads})
        figures = json.loads(run["output"].strip().splitlines()[-1])
        figures.setdefault("peak_rss_bytes", run["peak_rss_bytes"])
        figures.setdefault("command", " ".join(command))
        figures.update(case=case, short=program)
        self.results.append(figures)
        return figures

    def median(self, case, program, key):
        values = [r[key] for r in self.results if r["case"] == case and r["short"] == program]
        values = [v for v in values if v is not None]
        return statistics.median(values) if values else None

    def snug(self, case, config, options):
        out_dir = os.path.join(self.args.out, "snug")
        command = script("snug_run.py") + ["--snug", self.args.snug, "--model", self.args.model]
        command += ["--config", config, "--out_dir", out_dir, *options]
        return self.measured(case, "snug", command)

    def step_case(self, precision, kind="step", snug_options=(), peer_options=()):
        args, case = self.args, f"{kind} {self.args.batch}x{self.args.tokens} {precision}"
        peer = "transformers" if kind == "step" else "peft"
        common = ["--model", args.model, "--precision", precision, "--batch", str(args.batch)]
        common += ["--tokens", str(args.tokens), "--threads", str(args.threads)]
        for _ in range(args.rounds):
            self.snug(case, os.path.join(HERE, "step.yaml"), [
                "--precision", precision, "--data.json_path", args.long_rows,
                "--train.micro_batch_size", str(args.batch),
                "--train.global_batch_size", str(args.batch),
                "--train.max_seq_length", str(args.tokens),
                "--train.max_steps", str(args.steps + 1), *snug_options,
            ])  # fmt: skip
            self.measured(case, peer, script("transformers_loop.py") + [
                *common, "--data", args.long_rows, "--steps", str(args.steps), *peer_options,
            ])  # fmt: skip
        if kind == "step":
            self.measured(case, "bound", script("matmul_bound.py") + common)
        return case

    def lora_case(self, precision, quantized=False):
        snug = ["--command", "finetune_lora", "--lora_r", "8", "--lora_alpha", "16"]
        peer = ["--lora_r", "8"]
        if quantized:
            snug += ["--quantize", "bnb.nf4"]
            peer += ["--quantize", "nf4"]
        kind = "qlora" if quantized else "lora"
        return self.step_case(precision, kind, snug, peer)

    def litgpt_case(self):
        case, args = "litgpt", self.args
        folder = split_rows(args.rows, os.path.join(args.out, "rows"))
        options = ["--train.max_steps", str(args.steps), "--data.init_args.json_path", folder]
        options += ["--precision", args.precision[0]]
        config = os.path.join(HERE, "litgpt.yaml")
        for _ in range(args.rounds):
            self.snug(case, config, [*options, "--warmup", "0"])
            self.measured(case, "litgpt", script("litgpt_full.py") + [
                "--model", args.model, "--config", config,
                "--out_dir", os.path.join(args.out, "litgpt"), *options,
            ])  # fmt: skip
        return case

    def length_case(self, tokens):
        case, args = f"length {tokens}", self.args
        self.snug(case, os.path.join(HERE, "step.yaml"), [
            "--precision", args.precision[0], "--data.json_path", args.long_rows,
            "--train.micro_batch_size", "1", "--train.global_batch_size", "1",
            "--train.max_seq_length", str(tokens), "--train.max_steps", str(args.steps + 1),
        ])  # fmt: skip
        return case


def table_row(bench, case, program):
    speed = bench.median(case, program, "tokens_per_second")
    memory = bench.median(case, program, "peak_rss_bytes")
    loss = bench.median(case, program, "validation_loss") if case == "litgpt" else None
    ours = bench.median(case, "snug", "tokens_per_second")
    our_memory = bench.median(case, "snug", "peak_rss_bytes")
    other = program not in ("snug", "bound")
    cells = [
        case,
        program,
        f"{speed:.0f}",
        f"{ours / speed:.2f}" if program != "snug" else "",
        f"{memory / GIB:.2f}" if program != "bound" else "",
        f"{our_memory / memory:.2f}" if other else "",
        f"{loss:.3f}" if loss is not None else "",
    ]
    return "| " + " | ".join(cells) + " |"


def print_table(bench, cases):
    print("| case | program | tokens/s | snug ÷ it | peak GiB | snug ÷ it | validation loss |")
    print("|---|---|---:|---:|---:|---:|---:|")
    for case in cases:
        for program in ("snug", "transformers", "peft", "litgpt", "bound"):
            if bench.median(case, program, "tokens_per_second") is not None:
                print(table_row(bench, case, program))
    print("\nCommands:\n")
    shown = set()
    for result in bench.results:
        if (result["case"], result["short"]) not in shown:
            shown.add((result["case"], result["short"]))
            print(f"- {result['case']}, {result['short']}: `{result['command']}`")


def machine():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        name = next((l.split(":")[1].strip() for l in file if l.startswith("model name")), "?")
    commit = subprocess.run(["git", "rev-parse", "HEAD"], stdout=subprocess.PIPE, check=False)
    return {
        "cpu": name,
        "cores": os.cpu_count(),
        "date": datetime.date.today().isoformat(),
        "commit": commit.stdout.decode().strip(),
    }


def parse_arguments():
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__.split("\n\n")[0])
    parser.add_argument("--cases", default="step,litgpt", help="of step,lora,qlora,litgpt,length (%(default)s)")
    parser.add_argument("--precision", default="bf16-true,32-true", help="all but step and lora: the first (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each program (%(default)s)")
    parser.add_argument("--steps", type=int, default=5, help="steps counted in a run (%(default)s)")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--lengths", default="64,256,1024,4096", help="%(default)s")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--limit_seconds", type=int, default=3600, help="for one run")
    parser.add_argument("--out", default="out/bench")
    for name in ("snug", "model", "rows", "long_rows"):
        parser.add_argument(f"--{name}", required=True, help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.precision = args.precision.split(",")
    return args


def main():
    args = parse_arguments()
    bench, cases, wanted = Bench(args), [], args.cases.split(",")
    os.makedirs(args.out, exist_ok=True)
    try:
        if "step" in wanted:
            cases += [bench.step_case(precision) for precision in args.precision]
        if "lora" in wanted:
            cases += [bench.lora_case(precision) for precision in args.precision]
        if "qlora" in wanted:
            cases.append(bench.lora_case(args.precision[0], quantized=True))
        if "litgpt" in wanted:
            cases.append(bench.litgpt_case())
        if "length" in wanted:
            cases += [bench.length_case(int(tokens)) for tokens in args.lengths.split(",")]
    except measure.Failed as failure:
        sys.exit(f"error: {failure}")
    finally:
        with open(os.path.join(args.out, "results.json"), "w", encoding="utf-8") as file:
            json.dump({"machine": machine(), "results": bench.results}, file, indent=1)
    print_table(bench, cases)


if __name__ == "__main__":
    main()
