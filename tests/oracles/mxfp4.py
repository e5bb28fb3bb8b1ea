#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A small gpt-oss whose experts are in MXFP4, as its published files are, and what transformers makes of
them: tests/data/formats/mxfp4/
  config.json, model.safetensors   with the tensors *_blocks and *_scales, the other weights in bfloat16
  expected.safetensors             the experts' matrices that transformers dequantizes, by our names; and
                                   logits (1, T, V) in float32 for input_ids (1, T)
Run: python3 mxfp4.py ../data/formats      (torch 2.11, transformers 5, safetensors)
"""
import json
import sys
from pathlib import Path

import torch
from model_parity import as_in_files
from parity_case import jitter
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, GptOssConfig, Mxfp4Config

SIZES = dict(vocab_size=32, hidden_size=64, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
             num_key_value_heads=1, head_dim=32, max_position_embeddings=64, initializer_range=0.2, num_local_experts=3,
             num_experts_per_tok=2, sliding_window=4, bos_token_id=2, eos_token_id=2, pad_token_id=None)


def packed(experts, rows, columns, generator):
    """Every code, and scales that make numbers of about 1, with some of the extremes."""
    blocks = torch.randint(0, 256, (experts, rows, columns // 32, 16), dtype=torch.uint8, generator=generator)
    scales = torch.randint(121, 126, (experts, rows, columns // 32), dtype=torch.uint8, generator=generator)
    scales[:, -1, 0] = torch.tensor([0, 1, 90], dtype=torch.uint8)
    return blocks, scales


def main():
    folder = Path(sys.argv[1]) / "mxfp4"
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(11)
    generator = torch.Generator().manual_seed(5)
    model = AutoModelForCausalLM.from_config(GptOssConfig(**SIZES), dtype=torch.bfloat16)
    jitter(model)
    tensors = {}
    for name, value in model.state_dict().items():
        if name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            experts, columns, rows = value.shape
            tensors[name + "_blocks"], tensors[name + "_scales"] = packed(experts, rows, columns, generator)
        else:
            tensors[name] = value.clone()
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = model.config.to_dict() | {"quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": [
        "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]}}
    (folder / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    loaded = AutoModelForCausalLM.from_pretrained(folder, quantization_config=Mxfp4Config(dequantize=True),
                                                  dtype=torch.bfloat16, attn_implementation="eager")
    expected = {}
    for name, value in loaded.state_dict().items():
        if name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            expected |= {key: part.float().contiguous() for key, part in as_in_files("gpt_oss", name, value).items()}
    ids = torch.randint(0, SIZES["vocab_size"], (1, 12), generator=generator)
    with torch.no_grad():
        expected |= {"input_ids": ids.int(), "logits": loaded.float()(input_ids=ids).logits.clone()}
    save_file(expected, folder / "expected.safetensors")
    print(sorted(expected), float(expected["logits"].abs().max()))


if __name__ == "__main__":
    main()
