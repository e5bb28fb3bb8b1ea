# SPDX-License-Identifier: Apache-2.0
"""bitsandbytes on the CPU, in the shapes of bench/kernels/quantized_bench.cpp: quantizing a weight, and
bfloat16 products with it, in ms (the best of as many runs as the given seconds hold). "train" is what
matmul_4bit does with a weight as it was quantized, "infer" what it does with one packed for its AVX512-BF16
kernel, "d_x" the gradient of the input. Needs torch and bitsandbytes."""

import argparse
import copy
import os
import time

os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")

import bitsandbytes as bnb  # noqa: E402
import bitsandbytes.functional as F  # noqa: E402
import torch  # noqa: E402

SHAPES = [(576, 576), (1536, 576), (4096, 4096), (11008, 4096)]
TOKENS = [1, 8, 64, 256, 1024]


def best(run, seconds):
    run()
    result, start, rounds = float("inf"), time.perf_counter(), 0
    while rounds < 3 or time.perf_counter() - start < seconds:
        before = time.perf_counter()
        run()
        result, rounds = min(result, time.perf_counter() - before), rounds + 1
    return result * 1e3


def quantizing(seconds):
    rows, cols = SHAPES[-1]
    for dtype in (torch.bfloat16, torch.float32, torch.float16):
        weight = (torch.randn(rows, cols) * 0.02).to(dtype)
        gigabytes = weight.numel() * weight.element_size() / 1e9
        runs = {
            "nf4": lambda: F.quantize_4bit(weight, quant_type="nf4"),
            "nf4-dq": lambda: F.quantize_4bit(weight, quant_type="nf4", compress_statistics=True),
            "fp4": lambda: F.quantize_4bit(weight, quant_type="fp4"),
            "int8": lambda: F.int8_vectorwise_quant(weight),
        }
        print(f"quantizing {rows}x{cols} from {dtype}")
        for name, run in runs.items():
            ms = best(run, seconds)
            print(f"  {name:8} {ms:8.2f} ms {gigabytes / ms * 1e3:7.2f} GB/s of the source", flush=True)


def packed(weight, state):
    """The layout of bitsandbytes' inference kernel, where this processor has one."""
    if not F.has_avx512bf16():
        return None
    return F._convert_weight_packed_for_cpu(weight, copy.deepcopy(state))


def products(seconds):
    print(f"{'weight':>13} {'N':>5} {'train':>10} {'train-dq':>10} {'infer':>10} {'d_x':>10}")
    for rows, cols in SHAPES:
        dense = (torch.randn(rows, cols) * 0.02).to(torch.bfloat16)
        weight, state = F.quantize_4bit(dense, quant_type="nf4")
        nested, nested_state = F.quantize_4bit(dense, quant_type="nf4", compress_statistics=True)
        inference = packed(weight, state)
        for tokens in TOKENS:
            x = torch.randn(tokens, cols).to(torch.bfloat16)
            g = torch.randn(tokens, rows).to(torch.bfloat16)
            with torch.no_grad():
                train = best(lambda: bnb.matmul_4bit(x, weight, state), seconds)
                train_dq = best(lambda: bnb.matmul_4bit(x, nested, nested_state), seconds)
                infer = best(lambda: bnb.matmul_4bit(x, *inference), seconds) if inference else float("nan")
            leaf = x.clone().requires_grad_()
            out = bnb.matmul_4bit(leaf, weight, state)
            d_x = best(lambda: torch.autograd.grad(out, leaf, g, retain_graph=True), seconds)
            row = f"{rows:5} x {cols:5} {tokens:5} {train:10.3f} {train_dq:10.3f} {infer:10.3f} {d_x:10.3f}"
            print(row, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=0.3, help="for each figure")
    parser.add_argument("--what", choices=["all", "quantize", "products"], default="all")
    args = parser.parse_args()
    print(f"bitsandbytes {bnb.__version__}, torch {torch.__version__}, {torch.get_num_threads()} threads")
    if args.what in ("all", "quantize"):
        quantizing(args.seconds)
    if args.what in ("all", "products"):
        products(args.seconds)


main()
