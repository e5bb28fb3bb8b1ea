# SPDX-License-Identifier: Apache-2.0
"""Milliseconds of one AdamW step on the host for SmolLM2-135M's number of parameters: torch's fused and
foreach AdamW and DeepSpeed's CPU Adam (which compiles itself on first use), beside snug's own kernel by
`optimizer_bench`, in turns. float32 and bfloat16 weights and gradients; the states of DeepSpeed and snug
are float32, torch's have the weights' type. One tensor, so that no program pays for a list."""

import argparse
import re
import statistics
import subprocess
import sys
import time

import torch

COUNT = 134_515_008


def milliseconds(step, steps):
    step()
    step()
    times = []
    for _ in range(steps):
        start = time.perf_counter()
        step()
        times.append((time.perf_counter() - start) * 1e3)
    return times


def weights(dtype):
    parameter = torch.nn.Parameter(torch.full((COUNT,), 0.5, dtype=dtype))
    parameter.grad = torch.full((COUNT,), 1e-3, dtype=dtype)
    return [parameter]


def torch_adamw(dtype, steps, **options):
    optimizer = torch.optim.AdamW(weights(dtype), lr=1e-5, weight_decay=0.0, **options)
    return milliseconds(optimizer.step, steps)


def deepspeed_adam(dtype, steps):
    from deepspeed.ops.adam import DeepSpeedCPUAdam

    optimizer = DeepSpeedCPUAdam(weights(dtype), lr=1e-5, adamw_mode=True, fp32_optimizer_states=True)
    return milliseconds(optimizer.step, steps)


def snug_adamw(bench, dtype, steps, threads):
    command = [bench, str(COUNT / 1e6), str(steps), str(threads)]
    output = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout
    title = {torch.float32: "float32 weights", torch.bfloat16: "bfloat16 weights"}[dtype]
    table = output[output.index(title) :]
    return [float(re.search(r"adamw, float32 states +([0-9.]+)", table)[1])]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--optimizer_bench", required=True, help="built with -DSNUG_BENCH=ON")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=7)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    print("| weights | program | best ms | median ms |\n|---|---|---:|---:|")
    for dtype in (torch.float32, torch.bfloat16):
        programs = {
            "snug": lambda: snug_adamw(args.optimizer_bench, dtype, args.steps, args.threads),
            "torch AdamW(fused=True)": lambda: torch_adamw(dtype, args.steps, fused=True),
            "torch AdamW(foreach=True)": lambda: torch_adamw(dtype, args.steps, foreach=True),
            "DeepSpeedCPUAdam": lambda: deepspeed_adam(dtype, args.steps),
        }
        times = {name: [] for name in programs}
        for _ in range(args.rounds):
            for name, run in programs.items():
                print(f"==> {dtype} {name}", file=sys.stderr, flush=True)
                times[name] += run()
        for name, values in times.items():
            median = f"{statistics.median(values):.1f}" if name != "snug" else ""
            print(f"| {str(dtype)[6:]} | {name} | {min(values):.1f} | {median} |")


if __name__ == "__main__":
    main()
