# SPDX-License-Identifier: Apache-2.0
"""The smallest device memory in which `snug plan --fit` still finds a way to fine-tune each model in
full, by bisection, and the host memory that this way takes. Prints a Markdown table.

Device memory here is all of it: what driver and libraries take (0.6 GiB, as in the device profiles)
and what the caching allocator reserves."""

import argparse
import json
import os
import subprocess

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
GIB = 2**30
MODELS = [
    ("tiny-llama", "TinyLlama 1.1B"),
    ("open-llama-3b", "OpenLLaMA 3B"),
    ("open-llama-7b", "OpenLLaMA 7B"),
    ("open-llama-13b", "OpenLLaMA 13B"),
]
STATES = {
    "float32 weights and states on the host": "--optimizer.master_weights true --optimizer.state_dtype float32",
    "bf16 weights and states": "",
}


def fit(args, model, options, budget):
    """The best plan within `budget` bytes, or None."""
    command = [
        args.snug, "plan", "--fit", "--json", "--device", args.device, "--precision", "bf16-true",
        "--model.config", os.path.join(ROOT, "recipes", "models", model + ".json"),
        "--train.max_seq_length", str(args.tokens), "--train.micro_batch_size", "1",
        "--train.global_batch_size", str(args.global_batch), "--memory_budget", str(budget),
        *options.split(),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 3):  # 3: nothing fits
        raise SystemExit("error: " + " ".join(command) + "\n" + done.stderr)
    result = json.loads(done.stdout)
    return result["fit"].get("best")


def smallest(args, model, options):
    step = args.step
    low, high = 640 * 2**20 // step, 128 * GIB // step  # in steps: low does not fit, high does
    best = fit(args, model, options, high * step)
    while high - low > 1:
        middle = (low + high) // 2
        found = fit(args, model, options, middle * step)
        low, high, best = (low, middle, found) if found else (middle, high, best)
    return high * step, best


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--snug", default=os.path.join(ROOT, "build", "snug"))
    parser.add_argument("--device", default="rtx-4090", help="whose rates and context are taken")
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--global_batch", type=int, default=16)
    parser.add_argument("--step", type=int, default=128 * 2**20, help="bytes")
    args = parser.parse_args()

    print("| model | updates | device GiB | host GiB | tokens/s | options that `--fit` chose |")
    print("|---|---|---:|---:|---:|---|")
    for model, name in MODELS:
        for what, options in STATES.items():
            memory, best = smallest(args, model, options)
            print(f"| {name} | {what} | {memory / GIB:.1f} | {best['offloaded_to_host'] / GIB:.1f} "
                  f"| {best['time']['tokens_per_second']:.0f} | `{best['options']}` |", flush=True)


if __name__ == "__main__":
    main()
