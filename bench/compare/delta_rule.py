# SPDX-License-Identifier: Apache-2.0
"""The gated delta rule, or with --form sum Mamba 2's scan, forward and backward of one document, beside transformers' torch
function for Qwen3-Next or Granite 4, in turns, in float32 and on the same number of threads. Prints a table of medians in milliseconds.

Needs torch and transformers, and delta_rule_bench from a build with -DSNUG_BENCH=ON."""

import argparse
import statistics
import subprocess
import time

import torch
import torch.nn.functional as F
from transformers.models.granitemoehybrid.modeling_granitemoehybrid import mamba2_chunk_scan
from transformers.models.qwen3_next.modeling_qwen3_next import torch_chunk_gated_delta_rule


def inputs(args):
    q, k = (torch.randn(1, args.tokens, args.key_heads, args.key_dim, requires_grad=True) for _ in range(2))
    v = torch.randn(1, args.tokens, args.value_heads, args.value_dim, requires_grad=True)
    g = (-F.softplus(torch.randn(1, args.tokens, args.value_heads))).requires_grad_()
    beta = torch.rand(1, args.tokens, args.value_heads, requires_grad=True)
    if args.form == "sum":
        g = (-torch.rand(args.value_heads)).requires_grad_()
    return q, k, v, g, beta


def torch_seconds(form, tensors, d_out):
    for tensor in tensors:
        tensor.grad = None
    start = time.perf_counter()
    if form == "delta":
        out, _ = torch_chunk_gated_delta_rule(*tensors, use_qk_l2norm_in_kernel=True)
    else:
        q, k, v, a, dt = tensors
        out = mamba2_chunk_scan(v, dt, a, k, q, 256)
    middle = time.perf_counter()
    out.backward(d_out)
    return middle - start, time.perf_counter() - middle


def snug_seconds(args):
    sizes = (args.form, args.tokens, args.key_heads, args.value_heads, args.key_dim, args.value_dim, args.threads)
    done = subprocess.run([args.bench, *map(str, sizes)], check=True, capture_output=True, text=True)
    return tuple(float(word) for word in done.stdout.split())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--bench", default="build/bench/delta_rule_bench")
    parser.add_argument("--form", choices=("delta", "sum"), default="delta")
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--key_heads", type=int, default=16)
    parser.add_argument("--value_heads", type=int, default=32)
    parser.add_argument("--key_dim", type=int, default=128)
    parser.add_argument("--value_dim", type=int, default=128)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9)
    args = parser.parse_args()

    torch.set_num_threads(args.threads)
    tensors = inputs(args)
    d_out = torch.randn(1, args.tokens, args.value_heads, args.value_dim)
    torch_seconds(args.form, tensors, d_out)  # its pages are there, as in the other program
    turns = [(torch_seconds(args.form, tensors, d_out), snug_seconds(args)) for _ in range(args.rounds)]
    print(f"{args.tokens} tokens, {args.key_heads}/{args.value_heads} heads of {args.key_dim}/{args.value_dim}, "
          f"{args.threads} threads, medians of {args.rounds}\n")
    print("| | transformers ms | snug ms | transformers ÷ snug | lowest to highest |")
    print("|---|---:|---:|---:|---:|")
    for name, part in (("forward", lambda t: t[0]), ("backward", lambda t: t[1]), ("both", sum)):
        theirs, ours = ([part(turn[i]) for turn in turns] for i in range(2))
        ratios = [a / b for a, b in zip(theirs, ours)]
        print(f"| {name} | {statistics.median(theirs) * 1e3:.0f} | {statistics.median(ours) * 1e3:.0f} | "
              f"{statistics.median(ratios):.1f} | {min(ratios):.1f} to {max(ratios):.1f} |")


if __name__ == "__main__":
    main()
