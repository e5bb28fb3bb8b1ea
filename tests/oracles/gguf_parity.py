#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Expected values for tests/parity/gguf_parity_test.cpp: a real model's GGUF file as transformers
dequantizes it. `snug demo --fetch_only` fetches the files.
Run: gguf_parity.py MODEL.gguf ../data/parity/NAME.safetensors, where NAME is smollm2 or gemma3-270m

  input_ids (2, 48)        the first 18 tokens of the second row are not counted in the loss
  last_logits              after the first row's last token, every (V // 49152)-th
  loss (1), losses         of the first step; of twenty AdamW steps on the same two rows, of Gemma five
  grad_norm.<name> (1)     and grad_sample.<name> (8): elements 0, n/8, 2n/8, …
  Where the model has a sliding window:
  long_ids (1, W + 128)    and long_logits, after its last token
  greedy_ids (2, 24)       each row's first 16 tokens and the 8 likeliest
  Where the vocabulary is sentencepiece's:
  line_hashes (1200, 4)    bytes of tokenizer_text.hash_ids for each line, by Google's library

Computed in float64, the cross-entropy too: the loss that a transformers model returns is from
logits rounded to float32, where torch's log_softmax on the CPU sums a whole vocabulary's
exponentials in the few lanes of one register. Over 49152 that is off by 6e-6 (AVX-512) or 1.3e-5
(AVX2), always to the same side, and some norms' gradients by 2e-4 or 5e-4.
"""
import sys
from pathlib import Path

import gguf
import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from tokenizer_text import hash_ids, mixed_lines

path = Path(sys.argv[1])
model = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32)
tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
texts = ["The apt package manager resolves dependencies between packages, downloads the archives from a "
         "mirror and unpacks them in an order that keeps the system usable at every moment. " * 3,
         "def fibonacci(n):\n    a, b = 0, 1\n    for _ in range(n):\n        a, b = b, a + b\n    return a\n" * 4]
ids = torch.tensor([tokenizer(t)["input_ids"][:48] for t in texts])
labels = ids.clone()
labels[1, :18] = -100


def loss_of(logits):
    assert logits.dtype == torch.float64
    return torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())


def some(logits):
    return logits.detach().float()[:: max(1, len(logits) // 49152)].clone()


def line_hashes():
    """By sentencepiece, of the model file that the GGUF's vocabulary was made from, as far as ids go.
    transformers differs where more than 31 spaces follow each other: its tokenizers merge what
    sentencepiece finds as one piece of 31 and a rest."""
    import sentencepiece
    from sentencepiece import sentencepiece_model_pb2

    fields = gguf.GGUFReader(path).fields
    tokens, scores, kinds, unknown, bos = (fields[f"tokenizer.ggml.{key}"].contents() for key in (
        "tokens", "scores", "token_type", "unknown_token_id", "bos_token_id"))
    proto = sentencepiece_model_pb2.ModelProto()
    for i, (token, score, kind) in enumerate(zip(tokens, scores, kinds)):
        proto.pieces.add(piece=token.replace(" ", "▁"), score=score, type=2 if i == unknown else kind)
    proto.trainer_spec.model_type = proto.trainer_spec.BPE
    proto.trainer_spec.byte_fallback = True
    proto.trainer_spec.unk_id, proto.trainer_spec.bos_id = unknown, bos
    proto.normalizer_spec.add_dummy_prefix = False
    proto.normalizer_spec.remove_extra_whitespaces = False
    pieces = sentencepiece.SentencePieceProcessor(model_proto=proto.SerializeToString())
    found = []
    for line in mixed_lines(7, 1200):
        # The library does not read control tokens in a text, as transformers does: <unk> is the one there.
        stretches = [pieces.encode(part) for part in line.split(tokens[unknown])]
        encoded = [bos, *stretches[0]] + [i for part in stretches[1:] for i in (unknown, *part)]
        assert encoded == tokenizer(line)["input_ids"] or " " * 32 in line, line
        found.append(list(bytes.fromhex(hash_ids(encoded))))
    return torch.tensor(found, dtype=torch.uint8)


expected = {}
if window := getattr(model.config, "sliding_window", None):
    greedy = model.generate(ids[:, :16], max_new_tokens=8, do_sample=False)
    expected["greedy_ids"] = greedy.int()
model.double()
if window:
    long = torch.tensor([tokenizer(texts[0] + texts[1] * 12)["input_ids"][: window + 128]])
    assert long.shape == (1, window + 128)
    expected["long_ids"] = long.int()
    with torch.no_grad():
        expected["long_logits"] = some(model(input_ids=long, logits_to_keep=1).logits[0, -1])
if "tokenizer.ggml.scores" in gguf.GGUFReader(path).fields:
    expected["line_hashes"] = line_hashes()
logits = model(input_ids=ids).logits
loss = loss_of(logits)
loss.backward()
expected |= {"input_ids": ids.int(), "labels": labels.int(), "loss": loss.detach().float().reshape(1),
             "last_logits": some(logits[0, -1])}
for name, p in model.named_parameters():
    flat = p.grad.flatten()
    expected["grad_norm." + name] = flat.norm().float().reshape(1)
    expected["grad_sample." + name] = flat[torch.arange(8) * (flat.numel() // 8)].float()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5, weight_decay=0.01)
losses = []
for _ in range(5 if window else 20):
    optimizer.zero_grad()
    loss = loss_of(model(input_ids=ids).logits)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
expected["losses"] = torch.tensor(losses)
save_file(expected, sys.argv[2])
print(losses)
