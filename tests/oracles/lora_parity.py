#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Expected values for tests/parity from peft: low-rank adapters beside the small models that
llama_parity.py and model_parity.py made, in float32.

Run after those: python3 lora_parity.py ../data/parity [CASE …]
                         (torch 2.11, transformers 5, peft 0.21, bitsandbytes 0.50, safetensors)
Per case <folder>/lora-<name>.safetensors:
  input_ids (B, T), labels (B, T)      as in llama_parity.py
  start.<parameter>                    adapters' values (B is not zero, so that A has a gradient)
  logits (B, T, V), loss (1)           of the first batch, mean over counted tokens
  grad.<parameter>                     of that loss
  losses (20)                          of twenty AdamW steps; case lora-plus: with loraplus's groups
A quantized base is one whose linear layers but the head hold what bitsandbytes makes of them and
back: what its layers multiply by, with float32 as the type to compute in.
Parameters carry our names: "<module>.lora_A.weight", "<module>.lora_magnitude_vector.weight". Those of
gpt-oss's experts, which peft has in one matrix, are cut into each expert's.
"""
import re
import sys
from pathlib import Path

import bitsandbytes as bnb
import torch
from peft import LoraConfig, get_peft_model
from peft.optimizers import create_loraplus_optimizer
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

LINEAR = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
NEOX = ["query_key_value", "dense", "dense_h_to_4h", "dense_4h_to_h"]
EXPERTS = ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]
# name: (model, arguments of LoraConfig, learning rate of B over that of A, format of the base)
CASES = {
    "qv": ("llama", dict(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"]), 1, None),
    "all": ("llama-bias", dict(r=3, lora_alpha=6, target_modules=LINEAR + ["lm_head"]), 1, None),
    "mlp-rslora": ("mistral", dict(r=4, lora_alpha=2, use_rslora=True,
                                   target_modules=["gate_proj", "up_proj", "down_proj"]), 1, None),
    "dora": ("qwen2", dict(r=4, lora_alpha=8, use_dora=True, target_modules=LINEAR), 1, None),
    "second-block": ("llama3-rope", dict(r=2, lora_alpha=4,
                                         target_modules=r".*layers\.1\.self_attn\.(q|o)_proj"), 1, None),
    "plus": ("llama", dict(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"]), 16, None),
    "nf4": ("llama", dict(r=4, lora_alpha=8, target_modules=LINEAR), 1, "nf4"),
    "nf4-dq-dora": ("qwen2", dict(r=4, lora_alpha=8, use_dora=True, target_modules=LINEAR), 1,
                    "nf4-dq"),
    "fp4": ("mistral", dict(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"]), 1, "fp4"),
    "transposed": ("gpt2", dict(r=4, lora_alpha=8, fan_in_fan_out=True,
                                target_modules=["c_attn", "c_fc", "c_proj"]), 1, None),
    "transposed-dora": ("gpt2-untied", dict(r=4, lora_alpha=8, use_dora=True, fan_in_fan_out=True,
                                            target_modules=["c_attn", "c_proj"]), 1, None),
    # Fused layers, a head's q, k and v side by side, windows and caps.
    "fused": ("phi3", dict(r=4, lora_alpha=8, target_modules=["qkv_proj", "o_proj", "gate_up_proj", "down_proj"]), 1, None),
    "interleaved-dora": ("gpt-neox", dict(r=4, lora_alpha=8, use_dora=True, target_modules=NEOX), 1, None),
    "nf4-interleaved": ("gpt-neox", dict(r=4, lora_alpha=8, target_modules=NEOX), 1, "nf4"),
    "shared-key": ("falcon", dict(r=4, lora_alpha=8, target_modules=NEOX), 1, None),
    "nf4-shared-key-dora": ("falcon", dict(r=4, lora_alpha=8, use_dora=True, target_modules=NEOX), 1, "nf4"),
    "grouped-dora": ("falcon-grouped", dict(r=4, lora_alpha=8, use_dora=True, target_modules=NEOX), 1, None),
    "nf4-grouped": ("falcon-grouped", dict(r=4, lora_alpha=8, target_modules=NEOX), 1, "nf4"),
    "int8-shared-norm": ("falcon-shared-norm", dict(r=4, lora_alpha=8, target_modules=NEOX), 1, "int8"),
    "partly-rotated": ("stablelm", dict(r=4, lora_alpha=8, target_modules=LINEAR), 1, None),
    "nf4-partly-rotated": ("stablelm", dict(r=4, lora_alpha=8, target_modules=LINEAR), 1, "nf4"),
    "nf4-no-rotary": ("smollm3", dict(r=4, lora_alpha=8, target_modules=LINEAR), 1, "nf4"),
    "nf4-fused": ("phi3", dict(r=4, lora_alpha=8, target_modules=["qkv_proj", "o_proj", "gate_up_proj", "down_proj"]), 1, "nf4"),
    "nf4-no-gate": ("starcoder2", dict(r=4, lora_alpha=8, target_modules=LINEAR[:4] + ["c_fc", "c_proj"]), 1, "nf4"),
    "int8-no-gate-dora": ("starcoder2", dict(r=4, lora_alpha=8, use_dora=True, target_modules=LINEAR[:4] + ["c_fc", "c_proj"]), 1, "int8"),
    "nf4-yarn-windows": ("olmo3", dict(r=4, lora_alpha=8, target_modules=LINEAR), 1, "nf4"),
    "int8-yarn-windows": ("olmo3", dict(r=4, lora_alpha=8, target_modules=LINEAR), 1, "int8"),
    "nf4-rotary-windows": ("exaone4", dict(r=4, lora_alpha=8, target_modules=LINEAR), 1, "nf4"),
    "int8-rotary-windows-dora": ("exaone4", dict(r=4, lora_alpha=8, use_dora=True, target_modules=LINEAR), 1, "int8"),
    "nf4-scaled-queries": ("ministral3", dict(r=4, lora_alpha=8, target_modules=LINEAR), 1, "nf4"),
    "int8-scaled-queries": ("ministral3", dict(r=4, lora_alpha=8, target_modules=LINEAR), 1, "int8"),
    "multipliers": ("granite", dict(r=4, lora_alpha=8, target_modules=LINEAR), 1, None),
    "norms-after-dora": ("olmo2", dict(r=4, lora_alpha=8, use_dora=True, target_modules=LINEAR), 1, None),
    "nf4-gemma3": ("gemma3", dict(r=4, lora_alpha=8, target_modules=LINEAR), 1, "nf4"),
    "relu": ("opt", dict(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj", "out_proj", "fc1", "fc2"]), 1, None),
    "int8-gemma": ("gemma2", dict(r=4, lora_alpha=8, target_modules=LINEAR), 1, "int8"),
    "nf4-qwen3": ("qwen3", dict(r=4, lora_alpha=8, target_modules=LINEAR), 1, "nf4"),
    # Adapters on all experts, and on the first block's MLP, which has no experts.
    "experts": ("qwen3-moe", dict(r=3, lora_alpha=6, target_modules=LINEAR), 1, None),
    "nf4-experts": ("olmoe", dict(r=3, lora_alpha=6, target_modules=LINEAR), 1, "nf4"),
    "nf4-experts-dora": ("mixtral", dict(r=3, lora_alpha=6, use_dora=True,
                                         target_modules=["q_proj", "v_proj", "w1", "w2", "w3"]), 1, "nf4"),
    "stacked-experts": ("gpt-oss", dict(r=3, lora_alpha=6, target_modules=LINEAR[:4], target_parameters=EXPERTS), 1, None),
    "nf4-stacked-experts": ("gpt-oss", dict(r=2, lora_alpha=6, target_modules=["q_proj", "v_proj"],
                                            target_parameters=EXPERTS[1:]), 1, "nf4"),
    "int8": ("llama-bias", dict(r=4, lora_alpha=8, target_modules=LINEAR + ["lm_head"]), 1, "int8"),
}
STEPS, BATCH = 20, 2


def our_name(name):
    name = name.removeprefix("base_model.model.")
    if re.search(r"\.experts\.\d+\.w\d\.", name):  # Mixtral's
        name = name.replace(".mlp.", ".block_sparse_moe.")
    return name.replace(".default.weight", ".weight").replace(
        "lora_magnitude_vector.default", "lora_magnitude_vector.weight")


def halves(value):
    """Our order of a gpt-oss expert's outputs, the rows of `value`: gates, then ups."""
    return torch.cat((value[::2], value[1::2]))


def ours(name, value, base):
    """Our names with our values of one of peft's parameters."""
    name = our_name(name)
    stack = re.fullmatch(r"(.*\.experts)(\.base_layer)?\.(lora_[AB])\.weight", name)
    if stack is None:
        return {name: value}
    experts = base.config.num_local_experts
    wrapped = dict(base.named_modules())[stack[1] + (stack[2] or "")].parameter_name
    if stack[3] == "lora_A":
        parts = value.chunk(experts)
    else:
        parts = [part.contiguous() for part in value.view(len(value), -1, experts).unbind(-1)]
        parts = [halves(part) for part in parts] if wrapped == "gate_up_proj" else parts
    return {f"{stack[1]}.{e}.{wrapped}.{stack[3]}.weight": part.clone() for e, part in enumerate(parts)}


def there_and_back(weight, form):
    if form == "int8":
        codes, scale, _ = bnb.functional.int8_vectorwise_quant(weight)
        return bnb.functional.int8_vectorwise_dequant(codes, scale)
    # Flat: on the CPU bitsandbytes dequantizes rows shorter than a block wrongly.
    codes, state = bnb.functional.quantize_4bit(weight.flatten(), blocksize=64,
                                                quant_type=form[:3],
                                                compress_statistics=form.endswith("dq"))
    return bnb.functional.dequantize_4bit(codes, state).view_as(weight)


class LinearExperts(torch.nn.ModuleList):
    """transformers' experts with each layer by itself, as files and adapters' names have them."""

    def __init__(self, fused, names):
        super().__init__()
        self.names = names
        for gate_up, down in zip(fused.gate_up_proj, fused.down_proj):
            expert = torch.nn.Module()
            for name, weight in zip(names, (*gate_up.chunk(2), down)):
                layer = torch.nn.Linear(*weight.t().shape, bias=False)
                layer.weight.data = weight.detach().clone()
                expert.add_module(name, layer)
            self.append(expert)

    def forward(self, hidden, chosen, weights):
        out = torch.zeros_like(hidden)
        for index, expert in enumerate(self):
            token, place = torch.where(chosen == index)
            gate, up, down = (getattr(expert, name) for name in self.names)
            value = down(torch.nn.functional.silu(gate(hidden[token])) * up(hidden[token]))
            out.index_add_(0, token, value * weights[token, place, None])
        return out


def unfuse_experts(model):
    if model.config.model_type == "gpt_oss":  # whose files and adapters have them fused
        return
    names = ("w1", "w3", "w2") if model.config.model_type == "mixtral" else ("gate_proj", "up_proj", "down_proj")
    for module in list(model.modules()):
        if hasattr(module, "experts"):
            module.experts = LinearExperts(module.experts, names)
            model.config.model_type = "unfused"  # else peft targets the fused experts


def quantize(model, form):
    for module in model.modules():
        if isinstance(module, torch.nn.Linear) and module is not model.get_output_embeddings():
            module.weight.data = there_and_back(module.weight.data, form).float()
        if hasattr(module, "gate_up_proj_bias"):  # as each of our layers, (out, in)
            for expert, weight in enumerate(module.gate_up_proj.data):
                pairs = torch.arange(weight.shape[1]).view(2, -1).t().flatten()  # from halves
                module.gate_up_proj.data[expert] = there_and_back(halves(weight.t()), form).float()[pairs].t()
            for expert, weight in enumerate(module.down_proj.data):
                module.down_proj.data[expert] = there_and_back(weight.t(), form).float().t()


def make_case(name, model_name, arguments, ratio, form, folder):
    torch.manual_seed(4321)
    base = AutoModelForCausalLM.from_pretrained(folder / model_name, dtype=torch.float32,
                                                attn_implementation="eager")
    unfuse_experts(base)
    if form:
        quantize(base, form)
    model = get_peft_model(base, LoraConfig(task_type="CAUSAL_LM", lora_dropout=0.0, **arguments))
    trained = {key: p for key, p in model.named_parameters() if p.requires_grad}
    with torch.no_grad():
        for key, p in trained.items():
            if "lora_B" in key:
                p.copy_(torch.randn_like(p) * 0.1)
            if "magnitude" in key:
                p.mul_(1 + 0.1 * torch.randn_like(p))
    generator = torch.Generator().manual_seed(99)
    ids = torch.randint(0, base.config.vocab_size, (8, 24), generator=generator)
    labels = ids.clone()
    for row in range(8):
        labels[row, : row % 5] = -100
    expected = {"input_ids": ids.int(), "labels": labels.int()}
    for key, p in trained.items():
        expected |= {"start." + name: value for name, value in ours(key, p.detach().clone(), base).items()}
    out = model(input_ids=ids[:BATCH], labels=labels[:BATCH])
    out.loss.backward()
    expected["logits"] = out.logits.detach().clone()
    expected["loss"] = out.loss.detach().reshape(1).clone()
    for key, p in trained.items():
        expected |= {"grad." + name: value for name, value in ours(key, p.grad.clone(), base).items()}
    model.zero_grad()
    settings = dict(lr=1e-2, weight_decay=0.1, betas=(0.9, 0.95))
    if ratio == 1:
        optimizer = torch.optim.AdamW(trained.values(), **settings)
    else:
        optimizer = create_loraplus_optimizer(model, torch.optim.AdamW, loraplus_lr_ratio=ratio,
                                              **{**settings, "lr": 1e-3})
    losses = []
    for step in range(STEPS):
        at = step * BATCH % 8
        loss = model(input_ids=ids[at:at + BATCH], labels=labels[at:at + BATCH]).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    expected["losses"] = torch.tensor(losses, dtype=torch.float32)
    save_file(expected, folder / model_name / f"lora-{name}.safetensors")
    print(name, len(trained), "loss", float(expected["loss"]), "->", losses[-1])


def main():
    for name, (model_name, arguments, ratio, form) in CASES.items():
        if len(sys.argv) == 2 or name in sys.argv[2:]:
            make_case(name, model_name, arguments, ratio, form, Path(sys.argv[1]))


if __name__ == "__main__":
    main()
