#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Expected values for tests/parity/distillation_parity_test.cpp: the small models that preferences.py
trains learn from another model of their shape, by TRL's divergence and torch's AdamW, in float32. Of two
models all weights train, of two peft's low-rank adapters.

Run after llama_parity.py and model_parity.py: python3 distillation.py ../data/parity
                 (torch 2.11, transformers 5.24, trl 1.16, peft 0.21, datasets 5, safetensors)
Writes distillation.safetensors:
  taught.input_ids, .labels (R, T)  of R rows: an answer behind its prompt, -1 behind a row's last token;
                               the answers' tokens, else -100
  <model>.start.<parameter>    adapters' values (B is not zero, so that A has a gradient)
  <model>.teacher (N, 2 V)     of each row's targets, row by row: the other model's V tokens, most likely
                               first, and their log-probabilities
  <model>.<case>.first (2)     the mean loss over the targets, and that of cross-entropy alone
  <model>.<case>.grad.<parameter>   of the loss
  <model>.<case>.steps (10, 2)      the same of ten AdamW steps

The whole vocabulary is TRL's GKDTrainer.generalized_jsd_loss of both models' logits. The K most likely
tokens and one outcome for all others are TRL's add_tail_bucket of both models' log-probabilities of these,
and the same divergence of the results.
"""
import re
import sys
from importlib.metadata import version
from pathlib import Path

import torch.nn.functional as F
from preferences import (MODELS, make_model, make_other, make_pairs, ours, stored, torch, trained)  # noqa: E402
from safetensors.torch import save_file  # noqa: E402
from trl.experimental.gkd.gkd_trainer import GKDTrainer  # noqa: E402
from trl.experimental.sdpo.loss_utils import add_tail_bucket  # noqa: E402

# name: (tokens of the teacher's, 0 for all; beta; weight of cross-entropy)
CASES = {
    "forward": (0, 0.0, 0.0),
    "reverse": (0, 1.0, 0.0),
    "jensen-shannon": (0, 0.5, 0.0),
    "forward-top": (8, 0.0, 0.0),
    "reverse-top": (8, 1.0, 0.25),
    "jensen-shannon-top": (8, 0.3, 0.5),
}
STEPS = 10


def targets_of(logits, labels):
    return logits[:, :-1][labels[:, 1:] != -100]


def loss_of(student, teacher, wanted, case):
    """Mean loss over the targets, and that of cross-entropy alone."""
    top_k, beta, weight = case
    plain = F.cross_entropy(student, wanted)
    if top_k > 0:
        ids = teacher.topk(top_k, dim=-1).indices
        student, teacher = (add_tail_bucket(logits.log_softmax(-1).gather(-1, ids))
                            for logits in (student, teacher))
    distance = GKDTrainer.generalized_jsd_loss(student[None], teacher[None], beta=beta,
                                               labels=torch.zeros(1, len(wanted)).long())
    return distance + weight * plain, plain


def train(model, lr, ids, labels, teacher, case):
    """Losses of STEPS steps, and the first one's gradients."""
    parameters = trained(model)
    optimizer = torch.optim.AdamW(parameters.values(), lr=lr, weight_decay=0.0)
    steps, gradients = [], {}
    mask, wanted = (ids >= 0).long(), labels[:, 1:][labels[:, 1:] != -100]
    for _ in range(STEPS):
        logits = model(input_ids=ids.clamp(min=0), attention_mask=mask).logits
        loss, plain = loss_of(targets_of(logits, labels), teacher, wanted, case)
        optimizer.zero_grad()
        loss.backward()
        gradients = gradients or {key: ours(key, p.grad) for key, p in parameters.items()}
        steps.append([loss.item(), plain.item()])
        optimizer.step()
    return steps, gradients


def make_cases(name, ids, labels, source):
    has_adapters, lr, kept = MODELS[name]
    result = {}
    if has_adapters:
        result |= {f"{name}.start.{key}": p.detach().clone()
                   for key, p in trained(make_model(source / name, True)).items()}
    with torch.no_grad():
        other = make_other(source / name, has_adapters)
        teacher = targets_of(other(input_ids=ids.clamp(min=0), attention_mask=(ids >= 0).long()).logits, labels)
    log_p, tokens = teacher.log_softmax(-1).sort(dim=-1, descending=True)
    result[name + ".teacher"] = torch.cat([tokens.float(), log_p], dim=1)
    for number, (case, arguments) in enumerate(CASES.items()):
        label = f"{name}.{case}"
        steps, gradients = train(make_model(source / name, has_adapters), lr, ids, labels, teacher, arguments)
        result |= {label + ".first": torch.tensor(steps[0]), label + ".steps": torch.tensor(steps)}
        result |= {f"{label}.grad.{key}": gradient for key, gradient in gradients.items()
                   if number == 0 or re.search(kept, key)}
        print(label, *(f"{loss:.6f} {plain:.4f}" for loss, plain in steps))
    return result


def main():
    torch.set_num_threads(1)
    target = Path(sys.argv[1])
    rows = stored([(prompt, chosen) for prompt, chosen, _ in make_pairs(torch.Generator().manual_seed(7))])
    result = {f"taught.{what}": value for what, value in rows.items()}
    for name in MODELS:
        result |= make_cases(name, rows["input_ids"].long(), rows["labels"].long(), target)
    versions = ", ".join(f"{package} {version(package)}" for package in ("torch", "transformers", "trl", "peft"))
    save_file(result, target / "distillation.safetensors", metadata={"versions": versions})


if __name__ == "__main__":
    main()
