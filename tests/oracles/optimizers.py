#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Expected values for tests/unit/core/optim from torch's and bitsandbytes' optimizers: three tensors, five
steps.

Run: python3 optimizers.py ../data/optim     (torch 2.11, bitsandbytes 0.50, triton, safetensors)
expected.safetensors:
  signed_map, unsigned_map (256)     bitsandbytes' dynamic 8-bit maps
  start.<i> in bfloat16, grad.<step>.<i>   (float32: no moment lies just between two codes)
  <case>.param.<i>                   after the last step
  <case>.<state>.<i>                 as well
  adamw_8bit.first.0                 the large tensor after the first step, before any code is read back

8 bits: the optimizer is bitsandbytes' AdamW8bit; its update is the one it keeps for reference
(optimizer_update_8bit_blockwise_pytorch), which looks for the nearest code, as its CUDA kernels do.
Its CPU backend instead rounds to a table of 65536 equal steps, too coarse for small second moments.
"""
import os
import sys
from pathlib import Path

os.environ["TORCHDYNAMO_DISABLE"] = "1"
import bitsandbytes as bnb  # noqa: E402
import bitsandbytes.functional as F  # noqa: E402
import torch  # noqa: E402
from bitsandbytes.backends.triton.kernels_optim import optimizer_update_8bit_blockwise_pytorch  # noqa: E402
from safetensors.torch import save_file  # noqa: E402

SHAPES = [(9, 470), (24, 31), (31,)]  # the first: 17 blocks of 256, the last one short
STEPS = 5


def exact_8bit_update(name, g, p, state1, state2, beta1, beta2, beta3, alpha, eps, step, lr, qmap1, qmap2,
                      absmax1, absmax2, weight_decay=0.0, gnorm_scale=1.0, skip_zeros=False):
    optimizer_update_8bit_blockwise_pytorch(p, g, state1, state2, beta1, beta2, beta3, alpha, eps, step, lr, qmap1,
                                            qmap2, absmax1, absmax2, weight_decay, gnorm_scale, skip_zeros,
                                            optimizer_name=name)


F.optimizer_update_8bit_blockwise = exact_8bit_update


def bfloat(tensor):
    return tensor.bfloat16().float()


def run(make, start, grads, states, dtype=torch.float32):
    params = [torch.nn.Parameter(s.to(dtype, copy=True)) for s in start]
    optimizer = make(params)
    result, first = {}, None
    for step in grads:
        for param, grad in zip(params, step):
            param.grad = grad.to(dtype, copy=True)
        optimizer.step()
        first = params[0].detach().clone() if first is None else first
    for i, param in enumerate(params):
        result[f"param.{i}"] = param.detach().clone()
        for theirs, ours in states.items():
            if theirs in optimizer.state[param]:
                value = optimizer.state[param][theirs].detach().clone()
                result[f"{ours}.{i}"] = value
    return result, first


def main():
    torch.manual_seed(7)
    start = [bfloat(torch.randn(s)) for s in SHAPES]
    # Gradients of very different sizes: from 1e-6 to 1 over the rows, and a few zeros.
    sizes = [torch.logspace(-6, 0, s[0]).reshape(-1, *[1] * (len(s) - 1)) for s in SHAPES]
    grads = [[torch.randn(s) * size * (torch.rand(s) > 0.02) for s, size in zip(SHAPES, sizes)]
             for _ in range(STEPS)]
    out = {"signed_map": F.create_dynamic_map(True), "unsigned_map": F.create_dynamic_map(False)}
    for i, value in enumerate(start):
        out[f"start.{i}"] = value.bfloat16()
        for k, step in enumerate(grads):
            out[f"grad.{k}.{i}"] = step[i]
    adam = {"state1": "exp_avg", "state2": "exp_avg_sq", "absmax1": "exp_avg_absmax", "absmax2": "exp_avg_sq_absmax"}
    lion = {"state1": "exp_avg"}
    factors = {"row_var": "row_var", "col_var": "col_var", "variance": "variance"}
    betas = dict(lr=0.01, betas=(0.9, 0.95), weight_decay=0.1)
    cases = {
        "adamw_8bit": run(lambda p: bnb.optim.AdamW8bit(p, eps=1e-8, **betas), start, grads, adam),
        "adamw_8bit_bf16": run(lambda p: bnb.optim.AdamW8bit(p, eps=1e-8, **betas), start, grads, {},
                               torch.bfloat16),
        "lion": run(lambda p: bnb.optim.Lion(p, **betas), start, grads, lion),
        "adafactor": run(lambda p: torch.optim.Adafactor(p, lr=0.05, weight_decay=0.1), start, grads, factors),
    }
    for name, (values, first) in cases.items():
        out |= {f"{name}.{key}": value.contiguous() for key, value in values.items()}
        if name == "adamw_8bit":
            out[f"{name}.first.0"] = first
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    save_file(out, folder / "expected.safetensors",
              metadata={"torch": torch.__version__, "bitsandbytes": bnb.__version__, "seed": "7"})


if __name__ == "__main__":
    main()
