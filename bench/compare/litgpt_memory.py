# SPDX-License-Identifier: Apache-2.0
"""Bytes that LitGPT's own model takes in training steps on one GPU, counted without a GPU.

litgpt's GPT class (of `finetune_lora` too), its chunked loss and torch's optimizers run under
FakeTensorMode: tensors have sizes and lifetimes, but no memory. Every storage is counted from its making
to its end. This is what `snug plan --like litgpt` is held against (tests/data/plan/litgpt_memory.jsonl).
Prints one line of JSON a case.

Attention runs through the operator that torch picks on the GPU: flash attention for 16-bit types
(memory-efficient attention for float32), plain products where the GPU is older than those kernels.
Dropout is the one operator that it is on a GPU, with a mask of one byte an element. With `quantize`, linear
layers are what Lightning's bitsandbytes plugin makes of them: 4-bit codes of float16 weights, dequantized
before each product and again in the backward; large optimizer states lie in paged memory, which is not
torch's and not counted.
"""

import argparse
import contextlib
import importlib.metadata
import json

import bitsandbytes
import litgpt.lora
import torch
import torch.nn.functional as F
from litgpt import Config
from litgpt.model import GPT
from litgpt.utils import chunked_cross_entropy
from torch._subclasses.fake_tensor import FakeTensorMode

from count_memory import DEVICE, Count


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


def dropout(x, p=0.5, training=True, inplace=False):
    return torch.native_dropout(x, p, True)[0] if training else x


class Product4bit(torch.autograd.Function):
    """A product with a quantized weight, as in the bitsandbytes that litgpt asks for."""

    @staticmethod
    def weight(state, codes, dtype):
        return bitsandbytes.functional.dequantize_4bit(codes, state).to(dtype)

    @staticmethod
    def forward(ctx, x, codes, state, bias):
        ctx.codes, ctx.state = codes, state
        return F.linear(x, Product4bit.weight(state, codes, x.dtype), bias)

    @staticmethod
    def backward(ctx, grad):
        return grad @ Product4bit.weight(ctx.state, ctx.codes, grad.dtype), None, None, None


class Linear4bit(torch.nn.Module):
    def __init__(self, linear, kind):
        super().__init__()
        self.codes, self.state = bitsandbytes.functional.quantize_4bit(
            linear.weight.data.half(), blocksize=64, quant_type=kind[:3],
            compress_statistics=kind.endswith("-dq"),
        )
        self.bias = linear.bias
        self.in_features, self.out_features = linear.in_features, linear.out_features

    @property
    def weight(self):
        return self.codes

    def forward(self, x):
        return Product4bit.apply(x, self.codes, self.state, self.bias)


class PagedAdamW:
    """bitsandbytes' rule of what is paged: states of 100,000 elements and more, all in float32."""

    def __init__(self, parameters):
        self.parameters, self.states = [p for p in parameters if p.requires_grad], None

    def step(self):
        if self.states is None:
            small = [p for p in self.parameters * 2 if p.numel() < 1e5]
            self.states = [torch.zeros_like(p, dtype=torch.float32) for p in small]

    def zero_grad(self):
        for p in self.parameters:
            p.grad = None


def build(case, dtype):
    """Model and optimizer as finetune_full or finetune_lora make them, and what else they keep alive."""
    with torch.device(DEVICE):
        if not case["lora"]:
            model = GPT(Config(**case["model"]))
        else:
            names = ("query", "key", "value", "projection", "mlp", "head")
            targets = {f"lora_{name}": name in case["lora"]["targets"] for name in names}
            model = litgpt.lora.GPT(litgpt.lora.Config(
                **case["model"], **targets, lora_r=case["lora"]["r"], lora_alpha=16,
                lora_dropout=case["lora"]["dropout"],
            ))
            litgpt.lora.mark_only_lora_as_trainable(model)
    model.cos, model.sin = model.cos.to(dtype), model.sin.to(dtype)
    if not case["quantize"]:
        kind = {"sgd": torch.optim.SGD, "adamw": torch.optim.AdamW}[case["optimizer"]]
        return model, kind(model.parameters(), foreach=True), None  # foreach: what torch takes on a GPU
    for module in model.modules():
        for name, child in list(module.named_children()):
            if isinstance(child, torch.nn.Linear):
                setattr(module, name, Linear4bit(child, case["quantize"].removeprefix("bnb.")))
    optimizer = PagedAdamW(model.parameters())
    old = model.transformer.wte  # a variable of litgpt's main()
    stable = bitsandbytes.nn.StableEmbedding(old.num_embeddings, old.embedding_dim)
    model.transformer.wte = stable  # made in `dtype`
    return model, optimizer, old


def train(case):
    """One case: `steps` optimizer steps of `accumulate` micro-batches in the order of the program."""
    torch.nn.functional.scaled_dot_product_attention = attention(case["attention"])
    torch.nn.functional.dropout = dropout
    mixed = case["precision"].endswith("-mixed")
    dtype = torch.float32 if mixed or case["precision"] == "32-true" else torch.bfloat16
    lightning = case["order"] == "lightning"
    batch, tokens = case["batch"], case["tokens"]
    with FakeTensorMode(allow_non_fake_inputs=True), Count() as count:
        torch.set_default_dtype(dtype)
        model, optimizer, alive = build(case, dtype)
        torch.set_default_dtype(torch.float32)
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
                    torch.set_default_dtype(dtype if case["quantize"] else torch.float32)
                    with autocast:
                        new = model(ids, lm_head_chunk_size=128) if case["lora"] else model(ids)
                    torch.set_default_dtype(torch.float32)
                    if case["lora"]:
                        logits = [chunk.float() for chunk in new]
                        logits[-1] = logits[-1][..., :-1, :]
                    else:
                        logits = new.float()
                    del new
                    loss = chunked_cross_entropy(
                        logits if case["lora"] else logits[..., :-1, :], labels[..., 1:]
                    )
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
        del alive
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

EVERYTHING = {"r": 32, "dropout": 0.05, "targets": ["query", "key", "value", "projection", "mlp", "head"]}
DEFAULT = {"r": 8, "dropout": 0.05, "targets": ["query", "value"]}
NO_DROPOUT = {**EVERYTHING, "dropout": 0.0}

# model, precision, optimizer, micro-batch, accumulate, order, attention, adapters, quantize
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
    ("tiny-llama", "bf16-true", "adamw", 4, 4, "litgpt", "flash", EVERYTHING),
    ("open-llama-3b", "bf16-true", "adamw", 4, 4, "litgpt", "flash", EVERYTHING),
    ("open-llama-7b", "bf16-true", "adamw", 4, 4, "litgpt", "flash", EVERYTHING),
    ("open-llama-7b", "bf16-true", "adamw", 4, 4, "litgpt", "flash", EVERYTHING, "bnb.nf4"),
    ("open-llama-13b", "bf16-true", "adamw", 4, 4, "litgpt", "flash", EVERYTHING),
    ("tiny-llama", "32-true", "adamw", 4, 1, "litgpt", "flash", DEFAULT),
    ("tiny-llama", "bf16-mixed", "adamw", 4, 4, "litgpt", "flash", DEFAULT),
    ("tiny-llama", "bf16-mixed", "adamw", 4, 4, "litgpt", "flash", EVERYTHING),
    ("open-llama-3b", "bf16-true", "adamw", 4, 1, "litgpt", "flash", DEFAULT),
    ("open-llama-3b", "bf16-true", "adamw", 4, 4, "lightning", "flash", NO_DROPOUT),
    ("tiny-llama", "bf16-true", "adamw", 4, 4, "litgpt", "flash", DEFAULT, "bnb.nf4-dq"),
]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--layers", type=int, help="of every model, to look quickly")
    parser.add_argument("--lora", action="store_true", help="the cases with adapters only")
    args = parser.parse_args()
    dynamic = bitsandbytes.functional.create_dynamic_map()  # numbers, not shapes
    bitsandbytes.functional.name2qmap["dynamic"] = dynamic
    versions = {name: importlib.metadata.version(name) for name in ("litgpt", "torch")}
    for name, precision, optimizer, batch, accumulate, order, kind, *adapters in CASES:
        lora, quantize = (adapters + [None, None])[:2]
        if args.lora and not lora:
            continue
        model = dict(MODELS[name])
        if args.layers:
            model["n_layer"] = args.layers
        result = train(dict(
            model=model, precision=precision, optimizer=optimizer, batch=batch, tokens=args.tokens,
            accumulate=min(accumulate, 2), steps=2, order=order, attention=kind, lora=lora, quantize=quantize,
        ))
        result |= {"model": name, "layers": model["n_layer"], **versions}
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
