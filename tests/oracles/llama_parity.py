#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Expected values for tests/parity from transformers: small random Llama-type models, each with its
logits, loss, every gradient and twenty AdamW steps, all in float32.

Run: python3 llama_parity.py ../data/parity [CASE …]      (torch 2.11, transformers 5, safetensors)
Per case: config.json and model.safetensors as save_pretrained writes them, and expected.safetensors:
  input_ids (B, T), labels (B, T)      labels as transformers takes them, -100 where not counted
  logits (B, T, V), loss (1)           of the first batch, mean over counted tokens
  grad.<parameter>                     of that loss
  losses (20)                          of twenty AdamW steps over the rows, two at a time, repeating
  final.<parameter>                    after them (norm weights only, to keep the file small)
  brief_logits (12, V)                 llama-longrope: of the first row's beginning, alone
"""
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import (AutoModelForCausalLM, LlamaConfig, MistralConfig, Qwen2Config)

SMALL = dict(vocab_size=96, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
             num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128,
             attn_implementation="eager", initializer_range=0.2)
LLAMA3 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=32)
CASES = {
    "llama": LlamaConfig(**SMALL, tie_word_embeddings=False, rms_norm_eps=1e-6),
    "llama3-rope": LlamaConfig(**SMALL, tie_word_embeddings=True, rms_norm_eps=1e-5,
                               rope_parameters=dict(LLAMA3, rope_theta=500000.0)),
    "llama-bias": LlamaConfig(**{**SMALL, "num_key_value_heads": 4}, attention_bias=True,
                              mlp_bias=True, head_dim=10),
    "llama-linear": LlamaConfig(**SMALL, rope_parameters=dict(rope_type="linear", factor=4.0,
                                                              rope_theta=10000.0)),
    # All rows are longer than the 16 positions of the pretraining; brief_logits is of one that is not.
    "llama-longrope": LlamaConfig(**SMALL, tie_word_embeddings=True,
                                  rope_parameters=dict(rope_type="longrope", rope_theta=10000.0, factor=8.0,
                                                       original_max_position_embeddings=16,
                                                       short_factor=[1.0, 1.1, 1.3, 1.6],
                                                       long_factor=[1.5, 2.5, 4.0, 7.0])),
    "mistral": MistralConfig(**SMALL, sliding_window=7, tie_word_embeddings=False),
    "qwen2": Qwen2Config(**SMALL, tie_word_embeddings=True, rms_norm_eps=1e-6),
    "qwen2-windows": Qwen2Config(**SMALL, tie_word_embeddings=True, use_sliding_window=True,
                                 sliding_window=5, max_window_layers=1),
}
ROWS, LENGTH, BRIEF, STEPS, BATCH = 8, 24, 12, 20, 2


def make_case(name, config, folder):
    torch.manual_seed(1234)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    with torch.no_grad():  # biases and norms that are zeros and ones would hide mistakes
        for key, p in model.named_parameters():
            if "norm" in key or key.endswith("bias"):
                p.add_(torch.randn_like(p) * 0.1)
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    generator = torch.Generator().manual_seed(99)
    ids = torch.randint(0, config.vocab_size, (ROWS, LENGTH), generator=generator)
    labels = ids.clone()
    for row in range(ROWS):
        labels[row, : row % 5] = -100  # a masked prompt of another length each
    out = model(input_ids=ids[:BATCH], labels=labels[:BATCH])
    out.loss.backward()
    expected = {"input_ids": ids.int(), "labels": labels.int(),
                "logits": out.logits.detach().clone(), "loss": out.loss.detach().reshape(1).clone()}
    if name == "llama-longrope":
        with torch.no_grad():
            expected["brief_logits"] = model(input_ids=ids[:1, :BRIEF]).logits[0].clone()
    for key, p in model.named_parameters():
        expected["grad." + key] = p.grad.clone()
    model.zero_grad()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.1, betas=(0.9, 0.95))
    losses = []
    for step in range(STEPS):
        at = step * BATCH % ROWS
        loss = model(input_ids=ids[at:at + BATCH], labels=labels[at:at + BATCH]).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    expected["losses"] = torch.tensor(losses, dtype=torch.float32)
    for key, p in model.named_parameters():
        if "norm" in key or "q_proj" in key:
            expected["final." + key] = p.detach().clone()
    save_file(expected, folder / "expected.safetensors")
    (folder / "generation_config.json").unlink(missing_ok=True)
    print(name, "loss", float(expected["loss"]), "->", losses[-1])


def main():
    target = Path(sys.argv[1])
    for name, config in CASES.items():
        if sys.argv[2:] and name not in sys.argv[2:]:
            continue
        make_case(name, config, target / name)


if __name__ == "__main__":
    main()
