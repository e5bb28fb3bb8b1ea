# SPDX-License-Identifier: Apache-2.0
"""Bytes that LitGPT's own model takes in training steps on one GPU, counted without a GPU.

litgpt's GPT class, its chunked loss and torch's optimizers run under FakeTensorMode: tensors have
sizes and lifetimes, but no memory. Every storage is counted from its making
to its end. This is what `snug plan --like litgpt` is held against (tests/data/plan/litgpt_memory.jsonl).
Prints one line of JSON a case.

Attention runs through the operator that torch picks on the GPU: flash attention for 16-bit types
(memory-efficient attention for float32), plain products where the GPU is older than those kernels.
"""

import argparse
import contextlib
import importlib.metadata
import json
import weakref

import torch
import torch.nn.functional as F
from litgpt import Config
from litgpt.model import GPT
from litgpt.utils import chunked_cross_entropy
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter


DEVICE = "cpu"  # pretended as well; on a pretended cuda, autograd asks for a true one


class Count(TorchDispatchMode):
    """Live bytes of all storages that operators make on the device."""

    def __init__(self):
        super().__init__()
        self.live, self.peak, self.known = 0, 0, weakref.WeakKeyDictionary()

    def track(self, tensor):
        if tensor.device.type != DEVICE:
            return
        storage = tensor.untyped_storage()
        if storage in self.known:
            return
        size = (storage.nbytes() + 511) // 512 * 512  # as the allocator rounds
        self.known[storage] = size
        self.live += size
        self.peak = max(self.peak, self.live)
        weakref.finalize(storage, self.forget, size)

    def forget(self, size):
        self.live -= size

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for leaf in tree_iter(out):
            if isinstance(leaf, torch.Tensor):
                self.track(leaf)
        return out

    def reset_peak(self):
        self.peak = self.live


def attention(kind):
    def run(q, k, v, attn_mask=None, dropout_p=0.0, scale=None, is_causal=False):
        half = q.dtype in (torch.bfloat16, torch.float16)
        if kind == "math":
            aten = torch.ops.aten._scaled_dot_product_attention_math
            return aten(q, k, v, None, 0.0, is_causal, None, scale=scale)[0]
        if not half:
            aten = torch.ops.aten._scaled_dot_product_efficient_attention
            return aten(q, k, v, None, True, 0.0, is_causal, scale=scale)[0]
        size = q.size(-1)
        pad = -size % 8
        if pad:
            q, k, v = (F.pad(t, (0, pad)) for t in (q, k, v))
        aten = torch.ops.aten._scaled_dot_product_flash_attention
        out = aten(q, k, v, 0.0, is_causal, False, scale=scale)[0]
        return out[..., :size]

    return run


def train(case):
    """One case: `steps` optimizer steps of `accumulate` micro-batches in the order of the program."""
    torch.nn.functional.scaled_dot_product_attention = attention(case["attention"])
    mixed = case["precision"].endswith("-mixed")
    dtype = torch.float32 if mixed or case["precision"] == "32-true" else torch.bfloat16
    lightning = case["order"] == "lightning"
    batch, tokens = case["batch"], case["tokens"]
    with FakeTensorMode(allow_non_fake_inputs=True), Count() as count:
        torch.set_default_dtype(dtype)
        with torch.device(DEVICE):
            model = GPT(Config(**case["model"]))
            model.cos, model.sin = model.cos.to(dtype), model.sin.to(dtype)
        torch.set_default_dtype(torch.float32)
        kind = {"sgd": torch.optim.SGD, "adamw": torch.optim.AdamW}[case["optimizer"]]
        optimizer = kind(model.parameters(), foreach=True)  # what torch takes on a GPU
        autocast = (
            torch.autocast(DEVICE, torch.bfloat16) if mixed else contextlib.nullcontext()
        )
        after_forward = peak = 0
        logits = loss = None
        for step in range(case["steps"]):
            for index in range(case["accumulate"]):
                count.reset_peak()
                ids = torch.zeros(batch, tokens, dtype=torch.int64, device=DEVICE)
                labels = torch.zeros(batch, tokens, dtype=torch.int64, device=DEVICE)
                if lightning:
                    with autocast:
                        logits = model(ids)
                        loss = chunked_cross_entropy(logits[..., :-1, :], labels[..., 1:])
                else:  # Fabric casts what a model returns to float32, outside autocast
                    with autocast:
                        logits = model(ids)
                    logits = logits.float()
                    loss = chunked_cross_entropy(logits[..., :-1, :], labels[..., 1:])
                after_forward = count.live
                if lightning and index == 0:
                    optimizer.zero_grad()
                (loss / case["accumulate"]).backward()
                peak = max(peak, count.peak)
                if lightning:
                    del logits, loss
            count.reset_peak()
            optimizer.step()
            peak = max(peak, count.peak)
            if not lightning:
                optimizer.zero_grad()
        parameters = sum(p.numel() * p.element_size() for p in model.parameters())
    return {**case, "parameter_bytes": parameters, "after_forward": after_forward, "peak": peak}


def llama(layers, width, heads, groups, intermediate):
    return dict(
        name="", n_layer=layers, n_embd=width, n_head=heads, n_query_groups=groups, bias=False,
        intermediate_size=intermediate, vocab_size=32000, padding_multiple=64, rotary_percentage=1.0,
        parallel_residual=False, norm_class_name="RMSNorm", norm_eps=1e-6, mlp_class_name="LLaMAMLP",
        block_size=2048,
    )


MODELS = {
    "tiny-llama": llama(22, 2048, 32, 4, 5632),
    "open-llama-3b": llama(26, 3200, 32, 32, 8640),
    "open-llama-7b": llama(32, 4096, 32, 32, 11008),
    "open-llama-13b": llama(40, 5120, 40, 40, 13824),
}

# model, precision, optimizer, micro-batch, accumulate, order, attention
CASES = [
    ("tiny-llama", "32-true", "adamw", 8, 1, "litgpt", "flash"),
    ("tiny-llama", "bf16-true", "adamw", 8, 4, "litgpt", "flash"),
    ("tiny-llama", "bf16-mixed", "adamw", 8, 4, "litgpt", "flash"),
    ("open-llama-3b", "bf16-true", "adamw", 8, 4, "litgpt", "flash"),
    ("open-llama-7b", "bf16-true", "adamw", 4, 4, "litgpt", "flash"),
    ("open-llama-7b", "bf16-true", "adamw", 4, 1, "lightning", "flash"),
    ("open-llama-13b", "bf16-true", "adamw", 1, 1, "litgpt", "flash"),
    ("open-llama-13b", "bf16-true", "sgd", 1, 1, "litgpt", "flash"),
    ("tiny-llama", "bf16-true", "adamw", 8, 4, "lightning", "math"),
]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--layers", type=int, help="of every model, to look quickly")
    args = parser.parse_args()
    versions = {name: importlib.metadata.version(name) for name in ("litgpt", "torch")}
    for name, precision, optimizer, batch, accumulate, order, kind in CASES:
        model = dict(MODELS[name])
        if args.layers:
            model["n_layer"] = args.layers
        result = train(dict(
            model=model, precision=precision, optimizer=optimizer, batch=batch, tokens=args.tokens,
            accumulate=min(accumulate, 2), steps=2, order=order, attention=kind,
        ))
        result |= {"model": name, "layers": model["n_layer"], **versions}
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
