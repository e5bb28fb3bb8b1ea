# SPDX-License-Identifier: Apache-2.0
"""What is left of the speed where other programs want the cores too: steps of a model with random weights beside so many
busy threads, in turns with quiet ones, of snug and, with --python, of transformers. Prints a line of JSON for each.

The share of the cores that is fair: as many threads as there are cores compete with the busy ones, so T / (T + busy)."""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile

BUSY = "while True: pass"

LOOP = """
import json, sys, time, torch, transformers
config, batch, tokens, steps = json.load(open(sys.argv[1])), *map(int, sys.argv[2:5])
model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(**config), dtype=torch.bfloat16)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)
seconds = []
for _ in range(steps):
    ids = torch.randint(config["vocab_size"], (batch, tokens))
    start = time.perf_counter()
    model(input_ids=ids, labels=ids).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    seconds.append(time.perf_counter() - start)
print(json.dumps([batch * tokens / s for s in seconds]))
"""


def snug_rates(args, folder):
    shutil.rmtree(folder, ignore_errors=True)
    command = [args.snug, "finetune_full", "--model.config", args.config, "--data", "Synthetic", "--precision", "bf16-true",
               "--train.max_seq_length", args.tokens, "--train.micro_batch_size", args.batch, "--train.global_batch_size", args.batch,
               "--train.max_steps", args.steps, "--train.save_model", "false", "--train.save_interval", "none", "--out_dir", folder]
    subprocess.run([str(word) for word in command], check=True, capture_output=True)
    with open(os.path.join(folder, "run.json"), encoding="utf-8") as file:
        return [step["tokens"] / step["seconds"] for step in json.load(file)["steps"]]


def transformers_rates(args, _):
    command = [args.python, "-c", LOOP, args.config, str(args.batch), str(args.tokens), str(args.steps)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def beside(busy, nice, measure):
    others = [subprocess.Popen(["nice", "-n", str(nice), sys.executable, "-c", BUSY]) for _ in range(busy)]
    try:
        return measure()
    finally:
        for other in others:
            other.kill()
            other.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--snug", default="build/snug")
    parser.add_argument("--python", help="a Python with torch and transformers")
    parser.add_argument("--config", default="recipes/models/smollm2-135m.json")
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--busy", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--nice", type=int, default=0, help="of the busy threads")
    args = parser.parse_args()

    programs = {"snug": snug_rates}
    if args.python:
        programs["transformers"] = transformers_rates
    threads = len(os.sched_getaffinity(0))
    rates = {(name, busy): [] for name in programs for busy in [0, *args.busy]}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(args.rounds):
            for (name, busy), found in rates.items():
                run = beside(busy, args.nice, lambda: programs[name](args, os.path.join(folder, "run")))
                found += run[1:]
    for (name, busy), found in rates.items():
        rate, quiet = statistics.median(found), statistics.median(rates[name, 0])
        fair = threads / (threads + busy)
        print(json.dumps({"program": name, "busy": busy, "nice": args.nice, "tokens_per_second": round(rate, 1),
                          "of_quiet": round(rate / quiet, 3), "fair": round(fair, 3), "of_fair": round(rate / quiet / fair, 3)}))


if __name__ == "__main__":
    main()
