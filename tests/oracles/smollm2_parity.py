#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Expected values for tests/parity/smollm2_parity_test.cpp: the real SmolLM2-135M-Instruct (GGUF, Q4_1)
as transformers dequantizes it. Run: smollm2_parity.py MODEL.gguf ../data/parity/smollm2.safetensors

  input_ids (2, 48)        the first 18 tokens of the second row are not counted in the loss
  last_logits (V)          after the first row's last token
  loss (1), losses (20)    of the first step; of twenty AdamW steps on the same two rows
  grad_norm.<name> (1)     and grad_sample.<name> (8): elements 0, n/8, 2n/8, …

Computed in float64, the cross-entropy too: the loss that a transformers model returns is from
logits rounded to float32, where torch's log_softmax on the CPU sums a whole vocabulary's
exponentials in the few lanes of one register. Over 49152 that is off by 6e-6 (AVX-512) or 1.3e-5
(AVX2), always to the same side, and some norms' gradients by 2e-4 or 5e-4.
"""
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

gguf = Path(sys.argv[1])
model = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
model.double()
tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
texts = ["The apt package manager resolves dependencies between packages, downloads the archives from a "
         "mirror and unpacks them in an order that keeps the system usable at every moment. " * 3,
         "def fibonacci(n):\n    a, b = 0, 1\n    for _ in range(n):\n        a, b = b, a + b\n    return a\n" * 4]
ids = torch.tensor([tokenizer(t)["input_ids"][:48] for t in texts])
labels = ids.clone()
labels[1, :18] = -100


def loss_of(logits):
    assert logits.dtype == torch.float64
    return torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())


logits = model(input_ids=ids).logits
loss = loss_of(logits)
loss.backward()
expected = {"input_ids": ids.int(), "labels": labels.int(), "loss": loss.detach().float().reshape(1),
            "last_logits": logits[0, -1].detach().float()}
for name, p in model.named_parameters():
    flat = p.grad.flatten()
    expected["grad_norm." + name] = flat.norm().float().reshape(1)
    expected["grad_sample." + name] = flat[torch.arange(8) * (flat.numel() // 8)].float()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5, weight_decay=0.01)
losses = []
for _ in range(20):
    optimizer.zero_grad()
    loss = loss_of(model(input_ids=ids).logits)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
expected["losses"] = torch.tensor(losses)
save_file(expected, sys.argv[2])
print(losses)
