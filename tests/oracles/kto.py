#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Expected values for tests/parity/kto_parity_test.cpp from TRL's KTOTrainer, in float32, on the models
that preferences.py trains: of two all weights, of two peft's low-rank adapters.

Run after llama_parity.py and model_parity.py: python3 kto.py ../data/parity
                 (torch 2.11, transformers 5.24, trl 1.16, peft 0.21, datasets 5, safetensors)
Writes kto.safetensors:
  rated.input_ids (R, T)       of R rows: an answer behind its prompt, -1 behind a row's last token
  rated.labels (R, T)          the answers' tokens, else -100
  rated.desirable (R)          1 of a good answer, else 0
  others.input_ids, .labels    each row's prompt with the answer to another one, as TRL pairs them
  <model>.start.<parameter>    adapters' values (B is not zero, so that A has a gradient)
  <model>.reference (2R)       log-probabilities of the rows, then of the others, with another model of its
                               shape: random, or that without adapters
  <model>.before (2R)          the same with the model itself before training
  <model>.<case>.first (5)     as TRL logs the first step, with the other model as the reference: loss,
                               rewards of the good and of the bad answers, margin, kl
  <model>.<case>.grad.<parameter>   of that loss
  <model>.<case>.steps (10, 5)      the same of ten AdamW steps, with the model before training as the
                                    reference

TRL pairs prompts with other answers within a micro-batch, and estimates kl over it (and over ranks); ours
pairs them within the data set and estimates kl over the global batch. So here all rows are one batch.
"""
import re
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import preferences  # noqa: E402
from preferences import (MODELS, datasets, make_model, make_other, make_pairs, make_tokenizer,  # noqa: E402
                         ours, stored, torch, trained, word)
from safetensors.torch import save_file  # noqa: E402
from transformers import PrinterCallback  # noqa: E402
from trl import KTOConfig, KTOTrainer  # noqa: E402

CASES = {
    "kto": dict(beta=0.1),
    "kto-weighted": dict(beta=0.3, desirable_weight=1.3, undesirable_weight=0.6),
}
STEPS = 10
DESIRABLE = [True, False, True, True, False, True, False, True]
FIGURES = ("loss", "rewards/chosen", "rewards/rejected", "rewards/margins", "kl")


def make_rows():
    """Prompts, answers and whether these are good."""
    pairs = make_pairs(torch.Generator().manual_seed(99))
    return [(prompt, chosen if good else rejected, good)
            for (prompt, chosen, rejected), good in zip(pairs, DESIRABLE, strict=True)]


def as_texts(rows):
    def text(ids):
        return "".join(" " + word(token) for token in ids)
    return datasets.Dataset.from_list([{"prompt": text(prompt), "completion": text(answer), "label": good}
                                       for prompt, answer, good in rows])


def train(model, lr, other, rows, arguments, steps, folder):
    """TRL's training, recorded, with its data set."""
    config = KTOConfig(
        output_dir=folder, per_device_train_batch_size=len(rows), gradient_accumulation_steps=1,
        max_steps=steps, optim="adamw_torch", learning_rate=lr, lr_scheduler_type="constant",
        weight_decay=0.0, max_grad_norm=0.0, train_sampling_strategy="sequential", logging_steps=1,
        use_cpu=True, bf16=False, gradient_checkpointing=False, report_to=[], save_strategy="no",
        disable_tqdm=True, precompute_ref_log_probs=True, precompute_ref_batch_size=len(rows), **arguments)
    preferences.FIGURES = FIGURES
    recorder = preferences.Recorder()
    trainer = KTOTrainer(model=model, args=config, train_dataset=as_texts(rows), ref_model=other,
                         processing_class=make_tokenizer(), callbacks=[recorder])
    trainer.remove_callback(PrinterCallback)
    for row, (prompt, answer, good) in zip(trainer.train_dataset, rows, strict=True):
        assert (row["prompt_ids"], row["completion_ids"], row["label"]) == (prompt, answer, good)
    trainer.train()
    assert len(recorder.steps) == steps
    return recorder, trainer.train_dataset


def log_probs_in(dataset):
    return torch.tensor([*dataset["ref_logps"], *dataset["ref_KL_logps"]])


def make_cases(name, rows, source, folder):
    has_adapters, lr, kept = MODELS[name]
    result = {}
    if has_adapters:
        result |= {f"{name}.start.{key}": p.detach().clone()
                   for key, p in trained(make_model(source / name, True)).items()}
    for number, (case, arguments) in enumerate(CASES.items()):
        label = f"{name}.{case}"
        other = make_other(source / name, has_adapters)
        first, of_other = train(make_model(source / name, has_adapters), lr, other, rows, arguments, 1, folder)
        all_steps, before = train(make_model(source / name, has_adapters), lr, None, rows, arguments, STEPS,
                                  folder)
        result[label + ".first"] = torch.tensor(first.steps[0])
        result[label + ".steps"] = torch.tensor(all_steps.steps)
        result |= {f"{label}.grad.{key}": gradient for key, gradient in first.gradients.items()
                   if number == 0 or re.search(kept, key)}
        result |= {name + ".reference": log_probs_in(of_other), name + ".before": log_probs_in(before)}
        print(label, *(f"{value:.6f}" for value in first.steps[0]), "|",
              *(f"{step[0]:.6f} {step[-1]:.4f}" for step in all_steps.steps))
    return result, before


def main():
    torch.set_num_threads(1)
    datasets.disable_progress_bars()
    target, rows, result = Path(sys.argv[1]), make_rows(), {}
    with tempfile.TemporaryDirectory() as folder:
        for name in MODELS:
            own, dataset = make_cases(name, rows, target, folder)
            result |= own
    others = [(row["prompt_ids"], row["KL_completion_ids"]) for row in dataset]
    for key, answers in {"rated": [row[:2] for row in rows], "others": others}.items():
        result |= {f"{key}.{what}": value for what, value in stored(answers).items()}
    result["rated.desirable"] = torch.tensor(DESIRABLE).float()
    versions = ", ".join(f"{package} {version(package)}" for package in ("torch", "transformers", "trl", "peft"))
    save_file(result, target / "kto.safetensors", metadata={"versions": versions})


if __name__ == "__main__":
    main()
