# SPDX-License-Identifier: Apache-2.0
"""How many tokens a second the bare matrix products of one training step allow: forward, gradient of
the input and gradient of the weight of every linear layer and of the head, by torch's own kernels,
and nothing else. What a training program reaches of it is its efficiency."""

import argparse
import collections
import json
import statistics
import time

import torch


def products(config):
    """(inputs, outputs) -> how often a step has a linear layer of that shape."""
    d, f, layers = config["hidden_size"], config["intermediate_size"], config["num_hidden_layers"]
    heads = config["num_attention_heads"]
    head = config.get("head_dim") or d // heads
    kv = (config.get("num_key_value_heads") or heads) * head
    shapes = collections.Counter()
    for shape, times in {(d, heads * head): 1, (d, kv): 2, (d, f): 2}.items():
        shapes[shape] += times * layers
    shapes[(heads * head, d)] += layers
    shapes[(f, d)] += layers
    shapes[(d, config["vocab_size"])] += 1
    return shapes


def seconds_of(rows, inputs, outputs, dtype, repeats):
    """Median seconds of the three products of one layer."""
    x = torch.randn(rows, inputs).to(dtype)
    w = torch.randn(outputs, inputs).to(dtype)
    g = torch.randn(rows, outputs).to(dtype)
    times = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        torch.mm(x, w.t())
        torch.mm(g, w)
        torch.mm(g.t(), x)
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True, help="Hugging Face directory (config.json is read)")
    parser.add_argument("--precision", choices=["bf16-true", "32-true"], default="bf16-true")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=0)
    args = parser.parse_args()

    if args.threads:
        torch.set_num_threads(args.threads)
    with open(f"{args.model}/config.json", encoding="utf-8") as file:
        config = json.load(file)
    dtype = torch.bfloat16 if args.precision == "bf16-true" else torch.float32
    rows = args.batch * args.tokens
    total = sum(
        times * seconds_of(rows, inputs, outputs, dtype, args.repeats)
        for (inputs, outputs), times in products(config).items()
    )
    flops = sum(6 * rows * i * o * times for (i, o), times in products(config).items())
    print(json.dumps({
        "program": f"matrix products alone, torch {torch.__version__}",
        "precision": args.precision,
        "tokens_per_second": rows / total,
        "flops_per_second": flops / total,
        "threads": torch.get_num_threads(),
    }))


if __name__ == "__main__":
    main()
