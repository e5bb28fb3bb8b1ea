# SPDX-License-Identifier: Apache-2.0
"""Bytes that transformers' own Blip2ForConditionalGeneration takes in training steps on one GPU, counted
without a GPU.

The model, peft's adapters, gradient checkpointing and torch's optimizers run under FakeTensorMode: tensors
have sizes and lifetimes, but no memory. Every storage is counted from its making to its end, in the order
of a Lightning Trainer (gradients of the step before are dropped between forward and backward). This is what
`snug plan --like lightning` is held against (tests/data/plan/blip2_memory.jsonl). Prints one line of JSON a
case; each stack has a few layers, widths are the true ones.

Attention runs through the operator that torch picks on a recent GPU: flash attention for 16-bit types
without a mask, memory-efficient attention otherwise. Dropout is the one operator that it is on a GPU, with a
mask of one byte an element. Captions are padded, so that there are masks; their sizes are what the model's
own functions make of a padded batch.
"""

import argparse
import contextlib
import importlib.metadata
import json
import os

import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode
from transformers import Blip2Config, Blip2ForConditionalGeneration
from transformers.models.blip_2 import modeling_blip_2
from transformers.models.opt import modeling_opt
from transformers.models.t5 import modeling_t5

from count_memory import DEVICE, Count

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def attention(q, k, v, attn_mask=None, dropout_p=0.0, scale=None, is_causal=False, **_):
    if torch.is_autocast_enabled(DEVICE):
        dtype = torch.get_autocast_dtype(DEVICE)
        q, k, v = q.to(dtype), k.to(dtype), v.to(dtype)
        if attn_mask is not None and attn_mask.dtype != torch.bool:
            attn_mask = attn_mask.to(dtype)
    aten = torch.ops.aten
    if attn_mask is None and q.dtype in (torch.bfloat16, torch.float16):
        return aten._scaled_dot_product_flash_attention(q, k, v, dropout_p, is_causal, False, scale=scale)[0]
    if attn_mask is not None:
        if attn_mask.dtype == torch.bool:
            attn_mask = torch.empty_like(attn_mask, dtype=q.dtype)
        keys = attn_mask.size(-1)
        if keys % 16:
            attn_mask = F.pad(attn_mask, (0, -keys % 16))[..., :keys]
        attn_mask = attn_mask.expand(q.size(0), q.size(1), q.size(2), k.size(2))
    return aten._scaled_dot_product_efficient_attention(
        q, k, v, attn_mask, True, dropout_p, is_causal, scale=scale)[0]


def dropout(x, p=0.5, training=True, inplace=False):
    return torch.native_dropout(x, p, True)[0] if training and p > 0 else x


def causal_mask(config, inputs_embeds, attention_mask, **_):
    if attention_mask is None:
        return None
    rows, length = inputs_embeds.shape[:2]
    return torch.empty(rows, 1, length, length, dtype=torch.bool, device=DEVICE)


def bidirectional_mask(config, inputs_embeds, attention_mask, encoder_hidden_states=None, **_):
    rows, length = inputs_embeds.shape[:2]
    keys = length if encoder_hidden_states is None else encoder_hidden_states.shape[1]
    return torch.empty(rows, 1, length, keys, dtype=torch.bool, device=DEVICE)


def stand_in():
    F.scaled_dot_product_attention = attention
    F.dropout = dropout
    modeling_opt.create_causal_mask = modeling_t5.create_causal_mask = causal_mask
    modeling_t5.create_bidirectional_mask = bidirectional_mask
    modeling_blip_2.create_bidirectional_mask = lambda **_: None  # pictures are never padded


def build(case, dtype):
    torch.set_default_dtype(dtype)
    with torch.device(DEVICE):
        model = Blip2ForConditionalGeneration(Blip2Config(**case["config"]))
        if hasattr(model.language_model, "shared"):  # random weights are tied, the checkpoints' are not
            head = model.language_model.lm_head
            head.weight = torch.nn.Parameter(torch.empty_like(head.weight))
    torch.set_default_dtype(torch.float32)
    model.train()
    if case["lora"]:
        import peft

        move, torch.nn.Module.to = torch.nn.Module.to, lambda module, *_, **__: module  # where they are
        model = peft.get_peft_model(model, peft.LoraConfig(
            r=case["lora"]["r"], lora_alpha=32, lora_dropout=case["lora"]["dropout"],
            target_modules=case["lora"]["targets"], bias="none",
        ))
        torch.nn.Module.to = move
    if case["checkpointing"]:
        model.gradient_checkpointing_enable()
    kind = {"sgd": torch.optim.SGD, "adamw": torch.optim.AdamW}[case["optimizer"]]
    trained = [p for p in model.parameters() if p.requires_grad]
    return model, kind(trained, lr=1e-5, foreach=True)  # foreach: what torch takes on a GPU


def train(case):
    stand_in()
    mixed = case["precision"].endswith("-mixed")
    dtype = torch.bfloat16 if case["precision"] == "bf16-true" else torch.float32
    batch, tokens = case["batch"], case["tokens"]
    with FakeTensorMode(allow_non_fake_inputs=True), Count() as count:
        model, optimizer = build(case, dtype)
        cast = torch.autocast(DEVICE, torch.bfloat16) if mixed else contextlib.nullcontext()
        after_forward = peak = 0
        for _ in range(2):
            for index in range(case["accumulate"]):
                count.reset_peak()
                size = case["config"]["vision_config"]["image_size"]
                inputs = {"pixel_values": torch.zeros(batch, 3, size, size, device=DEVICE)}
                for name in ("input_ids", "attention_mask", "labels"):
                    length = case["labels"] if name == "labels" else tokens
                    inputs[name] = torch.zeros(batch, length, dtype=torch.int64, device=DEVICE)
                with cast:
                    outputs = model(**inputs)
                after_forward = count.live
                loss = outputs.loss
                del outputs, inputs
                if index == 0:
                    optimizer.zero_grad()
                (loss / case["accumulate"]).backward()
                del loss
                peak = max(peak, count.peak)
            count.reset_peak()
            optimizer.step()
            peak = max(peak, count.peak)
        parameters = sum(p.numel() * p.element_size() for p in model.parameters())
    return {**case, "parameter_bytes": parameters, "after_forward": after_forward, "peak": peak}


def config_of(name, layers):
    with open(os.path.join(ROOT, "recipes", "models", name + ".json"), encoding="utf-8") as file:
        config = json.load(file)
    for part in ("vision_config", "qformer_config", "text_config"):
        for key in ("num_hidden_layers", "num_layers", "num_decoder_layers"):
            if key in config[part]:
                config[part][key] = layers
    return config


ADAPTERS = {"r": 16, "dropout": 0.05, "targets": ["q", "v"]}

# model, precision, optimizer, micro-batch, accumulate, tokens, labels, checkpointing, adapters
CASES = [
    ("blip2-opt-2.7b", "32-true", "adamw", 16, 1, 82, 82, False, None),
    ("blip2-opt-2.7b", "bf16-true", "adamw", 16, 2, 82, 82, False, None),
    ("blip2-opt-2.7b", "bf16-true", "adamw", 16, 2, 80, 80, False, None),
    ("blip2-opt-2.7b", "bf16-mixed", "adamw", 16, 2, 82, 82, False, None),
    ("blip2-opt-6.7b", "bf16-true", "adamw", 32, 2, 82, 82, False, None),
    ("blip2-opt-2.7b", "bf16-true", "adamw", 16, 2, 82, 82, True, None),
    ("blip2-flan-t5-xl", "bf16-true", "sgd", 8, 2, 82, 50, False, None),
    ("blip2-flan-t5-xxl", "bf16-true", "sgd", 32, 2, 82, 50, False, None),
    ("blip2-flan-t5-xxl", "bf16-true", "adamw", 2, 2, 82, 50, True, None),
    ("blip2-flan-t5-xxl", "32-true", "adamw", 32, 2, 82, 50, False, ADAPTERS),
    ("blip2-flan-t5-xl", "32-true", "adamw", 4, 1, 82, 50, True, ADAPTERS),
]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--layers", type=int, default=2, help="of each stack")
    parser.add_argument("--case", type=int, help="this one only")
    args = parser.parse_args()
    versions = {name: importlib.metadata.version(name) for name in ("transformers", "torch")}
    for number, case in enumerate(CASES):
        if args.case is not None and args.case != number:
            continue
        name, precision, optimizer, batch, accumulate, tokens, labels, checkpointing, lora = case
        result = train(dict(
            config=config_of(name, args.layers), precision=precision, optimizer=optimizer, batch=batch,
            accumulate=accumulate, tokens=tokens, labels=labels, checkpointing=checkpointing, lora=lora,
        ))
        del result["config"]
        print(json.dumps({"model": name, "layers": args.layers, **result, **versions}), flush=True)


if __name__ == "__main__":
    main()
