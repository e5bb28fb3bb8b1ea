#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Adapters as others write them, with what others make of them: peft's LoRA over small random
transformers models, and LitGPT's LoRA over a small random model of its own, all in float32. The base
of experts that are one tensor is model_parity.py's gpt-oss.

Run: python3 peft_adapters.py ../data/adapters   (peft 0.21.2, transformers 5, litgpt 0.5.9, torch 2.11)
base/, tied/                config.json and model.safetensors as save_pretrained writes them
peft/<case>/                the adapter as peft's save_pretrained writes it, and expected.safetensors:
  <parameter>                 weights that merging changes (merge_and_unload)
  logits (1, T, V)            of the model with the adapter, for input_ids (1, T)
litgpt/base/                lit_model.pth and model_config.yaml
litgpt/<case>/              lit_model.pth.lora, hyperparameters.yaml, and merged/ as merge_lora leaves it
"""
import json
import shutil
import sys
import warnings
from pathlib import Path

import torch
import yaml
from litgpt.config import Config as LitConfig
from litgpt.lora import GPT as LoraGPT
from litgpt.lora import Config as LoraLitConfig
from litgpt.lora import lora_filter
from litgpt.model import GPT
from litgpt.scripts.merge_lora import merge_lora
from litgpt.utils import save_config
from model_parity import as_in_files
from peft import LoraConfig, get_peft_model
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText, LlamaConfig

SMALL = dict(vocab_size=64, hidden_size=16, intermediate_size=24, num_hidden_layers=2,
             num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
             attn_implementation="eager", initializer_range=0.2)
BASES = {"base": dict(tie_word_embeddings=False), "tied": dict(tie_word_embeddings=True)}
LINEARS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
ATTENTION = r"model\.layers\.\d+\.self_attn\.(q|k|v|o)_proj"
CASES = {
    "query-value": ("base", dict(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"])),
    "all": ("base", dict(r=2, lora_alpha=8, target_modules=[*LINEARS, "lm_head"])),
    "rslora": ("base", dict(r=4, lora_alpha=6, use_rslora=True, target_modules=ATTENTION)),
    "dora": ("base", dict(r=4, lora_alpha=8, use_dora=True, target_modules=LINEARS)),
    "patterns": ("base", dict(r=4, lora_alpha=8, target_modules=LINEARS,
                              layers_to_transform=[1], exclude_modules=["o_proj"],
                              rank_pattern={"q_proj": 2, r"layers\.1\.mlp\.down_proj": 6},
                              alpha_pattern={"mlp.*": 5, "self_attn.v_proj": 1.5})),
    "tied-head": ("tied", dict(r=4, lora_alpha=8, target_modules=["k_proj", "lm_head"])),
    "tied-dora": ("tied", dict(r=2, lora_alpha=4, use_dora=True, target_modules=["q_proj", "lm_head"])),
    # peft trains a copy of the embedding; the head keeps the base's.
    "tied-table": ("tied", dict(r=4, lora_alpha=8, target_modules=["k_proj"], modules_to_save=["embed_tokens"])),
    # Square, and turned in GPT-2's files.
    "conv1d-saved": ("gpt2", dict(r=3, lora_alpha=8, lora_dropout=0.0, fan_in_fan_out=True, target_modules=["c_fc"],
                                  modules_to_save=["attn.c_proj"])),
    # Two wrappers around the same experts, which are in one tensor.
    "stacked-experts": ("gpt-oss", dict(r=3, lora_alpha=8, lora_dropout=0.0, target_modules=["q_proj", "o_proj"],
                                        target_parameters=["mlp.experts.down_proj", "mlp.experts.gate_up_proj"])),
    "stacked-outputs": ("gpt-oss", dict(r=2, lora_alpha=8, lora_dropout=0.0, target_modules=["q_proj"],
                                        target_parameters=["model.layers.1.mlp.experts.down_proj"])),
    # Language models of models that also see pictures, whose towers have layers of the same names.
    "within": ("gemma3", dict(r=2, lora_alpha=8, target_modules=r".*language_model.*\.(q_proj|v_proj|down_proj)",
                              rank_pattern={r"model\.language_model\.layers\.1\.self_attn\.q_proj": 3})),
    "within-saved": ("llava", dict(r=3, lora_alpha=6, target_modules=[f"model.language_model.layers.{layer}.self_attn.k_proj"
                                                                      for layer in range(2)] + ["lm_head"],
                                   modules_to_save=["embed_tokens"])),
    "pickled": ("base", dict(r=2, lora_alpha=4, target_modules=["q_proj"])),
}
# LitGPT's own LoRA options. Its rows of q are in_features many, so that heads must make up the width.
LIT_BASE = dict(name="tiny", block_size=64, padded_vocab_size=64, vocab_size=64, n_layer=2, n_head=4,
                head_size=4, n_query_groups=2, n_embd=16, intermediate_size=24, rotary_percentage=1.0,
                parallel_residual=False, bias=False, norm_class_name="RMSNorm", mlp_class_name="LLaMAMLP",
                norm_eps=1e-5)
LIT_CASES = {
    "query-value": dict(lora_r=4, lora_alpha=8, lora_dropout=0.05, lora_query=True, lora_key=False,
                        lora_value=True, lora_projection=False, lora_mlp=False, lora_head=False),
    "all": dict(lora_r=2, lora_alpha=6, lora_dropout=0.0, lora_query=True, lora_key=True, lora_value=True,
                lora_projection=True, lora_mlp=True, lora_head=True),
    "key": dict(lora_r=2, lora_alpha=6, lora_dropout=0.0, lora_query=False, lora_key=True, lora_value=False,
                lora_projection=False, lora_mlp=True, lora_head=False),
}


def randomize(module, fragment, scale):
    """Adapters as training leaves them: what starts as zeros or ones would hide mistakes."""
    with torch.no_grad():
        for key, p in module.named_parameters():
            if fragment in key:
                p.add_(torch.randn_like(p) * scale)


def make_base(name, options, folder):
    torch.manual_seed(5)
    model = AutoModelForCausalLM.from_config(LlamaConfig(**SMALL, **options), dtype=torch.float32)
    model.save_pretrained(folder / name)
    (folder / name / "generation_config.json").unlink(missing_ok=True)


def make_case(name, base, options, folder):
    torch.manual_seed(len(name))
    within = name.startswith("within")
    where = folder.parent / ("language_part" if within else "parity") / base if within or base in ("gpt-oss", "gpt2") else folder / base
    loader = AutoModelForImageTextToText if within else AutoModelForCausalLM
    plain = loader.from_pretrained(where, attn_implementation="eager")
    before = {key: value.clone() for key, value in plain.state_dict().items()}
    model = get_peft_model(plain, LoraConfig(**dict(task_type="CAUSAL_LM", lora_dropout=0.1) | options))
    model.peft_config["default"].base_model_name_or_path = f"tests/data/{where.parent.name}/{base}"
    randomize(model, "lora_B", 0.2)
    randomize(model, "lora_magnitude_vector", 0.1)
    randomize(model, "modules_to_save", 0.1)
    model.eval()
    target = folder / "peft" / name
    if name == "pickled":  # the way of peft before 0.6, whose file this peft still reads
        model.save_pretrained(target)
        from safetensors.torch import load_file
        torch.save(load_file(target / "adapter_model.safetensors"), target / "adapter_model.bin")
        (target / "adapter_model.safetensors").unlink()
    else:
        model.save_pretrained(target)
    (target / "README.md").unlink(missing_ok=True)
    ids = torch.randint(0, SMALL["vocab_size"], (1, 12), generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        expected = {"input_ids": ids.int(), "logits": model(input_ids=ids).logits.clone()}
    merged = model.merge_and_unload().state_dict()
    for key, value in merged.items():
        # peft's own merge changes the tied embedding too, unlike the logits of the adapter.
        if name in ("tied-head", "tied-dora") and key == "model.embed_tokens.weight":
            continue
        if not torch.equal(value, before[key]):
            expected |= {name: part.clone().contiguous() for name, part in
                         as_in_files(plain.config.model_type, key.replace("language_model.", ""), value).items()}
    save_file(expected, target / "expected.safetensors")
    print("peft", name, sorted(set(expected) - {"input_ids", "logits"}))


def make_litgpt(folder, tokenizer):
    torch.manual_seed(9)
    base = folder / "base"
    base.mkdir(parents=True, exist_ok=True)
    config = LitConfig(**LIT_BASE)
    model = GPT(config)
    torch.save(model.state_dict(), base / "lit_model.pth")
    save_config(config, base)
    for name, options in LIT_CASES.items():
        case = folder / name
        case.mkdir(parents=True, exist_ok=True)
        lora = LoraGPT(LoraLitConfig(**LIT_BASE, **options))
        randomize(lora, "lora_B", 0.2)
        state = {key: value for key, value in lora.state_dict().items() if lora_filter(key, value)}
        torch.save({"model": state}, case / "lit_model.pth.lora")
        (case / "hyperparameters.yaml").write_text(yaml.dump(
            dict(checkpoint_dir=str(base), out_dir="out/finetune/lora", precision="32-true", **options)))
        shutil.copy(base / "model_config.yaml", case)
        for folder_of_tokenizer in (base, case):
            for file in ("tokenizer.json", "tokenizer_config.json"):
                shutil.copy(tokenizer / file, folder_of_tokenizer)
        merge_lora(case)
        (case / "merged").mkdir(exist_ok=True)
        (case / "lit_model.pth").rename(case / "merged/lit_model.pth")
        (case / "model_config.yaml").rename(case / "merged/model_config.yaml")
        text = (case / "hyperparameters.yaml").read_text()
        (case / "hyperparameters.yaml").write_text(text.replace(str(base), "tests/data/adapters/litgpt/base"))
        for folder_of_tokenizer in (base, case):
            for file in ("tokenizer.json", "tokenizer_config.json"):
                (folder_of_tokenizer / file).unlink()


def main():
    warnings.simplefilter("ignore")
    target = Path(sys.argv[1])
    for name, options in BASES.items():
        make_base(name, options, target)
    for name, (base, options) in CASES.items():
        make_case(name, base, options, target)
    make_litgpt(target / "litgpt", target.parent / "system/tiny")
    for path in target.rglob("adapter_config.json"):  # one form whatever the machine's order of sets
        config = json.loads(path.read_text())
        if isinstance(config["target_modules"], list):
            config["target_modules"].sort()
        path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
