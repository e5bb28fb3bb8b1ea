#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Expected values for tests/parity/preference_parity_test.cpp from TRL: preference training of the
small models that llama_parity.py and model_parity.py made, by TRL's own trainers, in float32. Of two
models all weights train, of two peft's low-rank adapters.

Run after those: python3 preferences.py ../data/parity
                 (torch 2.11, transformers 5.24, trl 1.16, peft 0.21, datasets 5, safetensors)
Writes preferences.safetensors:
  <rows>.input_ids (2P, T)     of P pairs: the chosen answer behind its prompt, then the rejected one
                               behind the same, -1 behind a row's last token
  <rows>.labels (2P, T)        the answers' tokens, else -100
                               rows: "pairs", or "bare", whose prompts have one token
  <model>.start.<parameter>    adapters' values (B is not zero, so that A has a gradient)
  <model>.reference (2P)       log-probabilities of the pairs' answers with another model of its shape:
                               random, or that without adapters
  <model>.before (2P)          the same with the model itself before training
  <model>.<case>.first (5)     as TRL logs the first step, with the other model as the reference where
                               there is one: loss, rewards of the chosen and of the rejected answers,
                               share of pairs whose chosen one has more, margin
  <model>.<case>.grad.<parameter>   of that loss
  <model>.<case>.steps (10, 5)      the same of ten AdamW steps, with the model before training as the
                                    reference

Where TRL's loss has a mean over the chosen tokens of a batch, ours has a mean over pairs of each one's
mean, so a batch is one pair there and a step accumulates four. TRL's orpo learns prompts too, which
ours does not: its prompts have one token, which nothing predicts. TRL's dpo ignores label_smoothing;
its "aot", which sorts a batch's differences before it compares them, is dpo with smoothing where a
batch is one pair.
"""
import os
import re
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

os.environ.update(HF_HUB_OFFLINE="1", HF_HUB_DISABLE_TELEMETRY="1", TRL_EXPERIMENTAL_SILENCE="1",
                  TQDM_DISABLE="1", CUDA_VISIBLE_DEVICES="")

import datasets  # noqa: E402
import torch  # noqa: E402
from peft import LoraConfig, get_peft_model  # noqa: E402
from safetensors.torch import save_file  # noqa: E402
from tokenizers import Tokenizer  # noqa: E402
from tokenizers.models import WordLevel  # noqa: E402
from tokenizers.pre_tokenizers import WhitespaceSplit  # noqa: E402
from transformers import (AutoModelForCausalLM, PreTrainedTokenizerFast, PrinterCallback,  # noqa: E402
                          TrainerCallback)
from trl import DPOConfig, DPOTrainer  # noqa: E402
from trl.experimental.cpo import CPOConfig, CPOTrainer  # noqa: E402
from trl.experimental.orpo import ORPOConfig, ORPOTrainer  # noqa: E402

# name: (whether adapters train, learning rate, what of the gradients is kept but in the first case, of
# which all is)
MODELS = {
    "llama": (False, 2e-3, r"norm|0\.self_attn\.(q|o)_proj|1\.mlp\.down_proj"),
    "gpt2": (False, 2e-3, r"ln_|0\.attn\.|1\.mlp\.c_proj\.bias"),
    "qwen3": (True, 1e-2, r"lora_A|0\.self_attn.*lora_B"),
    "gemma2": (True, 1e-2, r"lora_A|1\.self_attn.*lora_B"),
}
DPO, CPO, ORPO = (DPOTrainer, DPOConfig), (CPOTrainer, CPOConfig), (ORPOTrainer, ORPOConfig)
# name: (trainer, rows, pairs in a batch, arguments)
CASES = {
    "dpo": (DPO, "pairs", 4, dict(loss_type=["sigmoid"], beta=0.1)),
    "dpo-smoothed": (DPO, "pairs", 1, dict(loss_type=["aot"], beta=0.2, label_smoothing=0.2)),
    "dpo-sft": (DPO, "pairs", 1, dict(loss_type=["sigmoid", "sft"], loss_weights=[1.0, 0.5], beta=0.3)),
    "dpo-normalized": (DPO, "pairs", 4, dict(loss_type=["sigmoid_norm"], beta=0.5)),
    "ipo": (DPO, "pairs", 4, dict(loss_type=["ipo"], beta=0.5)),
    "hinge": (DPO, "pairs", 4, dict(loss_type=["hinge"], beta=0.25)),
    "cpo": (CPO, "pairs", 1, dict(loss_type="sigmoid", beta=0.1, cpo_alpha=1.0)),
    "cpo-smoothed": (CPO, "pairs", 4, dict(loss_type="sigmoid", beta=0.2, cpo_alpha=0.0,
                                           label_smoothing=0.1)),
    "simpo": (CPO, "pairs", 4, dict(loss_type="simpo", beta=2.0, cpo_alpha=0.0, simpo_gamma=1.0)),
    "simpo-sft": (CPO, "pairs", 1, dict(loss_type="simpo", beta=1.5, cpo_alpha=0.5, simpo_gamma=0.6,
                                        label_smoothing=0.1)),
    "orpo": (ORPO, "bare", 1, dict(beta=0.3)),
}
PAIRS, PAIRS_PER_STEP, STEPS = 8, 4, 10
PAD, END, VOCABULARY = 0, 2, 96
FIGURES = ("loss", "rewards/chosen", "rewards/rejected", "rewards/accuracies", "rewards/margins")


def make_pairs(generator):
    """Prompts, chosen and rejected answers of all sorts of lengths; answers end with END."""
    def draw(shortest, longest):
        length = int(torch.randint(shortest, longest + 1, (), generator=generator))
        return torch.randint(3, VOCABULARY, (length,), generator=generator).tolist()
    return [(draw(1, 6), draw(2, 8) + [END], draw(1, 9) + [END]) for _ in range(PAIRS)]


def bare(pairs):
    return [(prompt[-1:], chosen, rejected) for prompt, chosen, rejected in pairs]


def stored(pairs):
    """Rows of ids and of labels."""
    rows = [(prompt, answer) for prompt, *answers in pairs for answer in answers]
    longest = max(len(prompt) + len(answer) for prompt, answer in rows)
    ids, labels = torch.full((len(rows), longest), -1), torch.full((len(rows), longest), -100)
    for row, (prompt, answer) in enumerate(rows):
        end = len(prompt) + len(answer)
        ids[row, :end] = torch.tensor(prompt + answer)
        labels[row, len(prompt):end] = torch.tensor(answer)
    return {"input_ids": ids.int(), "labels": labels.int()}


def word(token):
    return f"w{token:02}"


def make_tokenizer():
    tokenizer = Tokenizer(WordLevel({word(i): i for i in range(VOCABULARY)}, unk_token=word(1)))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=word(END), pad_token=word(PAD))


def as_texts(pairs):
    """What the tokenizer makes these ids of: TRL's trainers read text."""
    rows = [{key: "".join(" " + word(token) for token in ids)
             for key, ids in zip(("prompt", "chosen", "rejected"), pair)} for pair in pairs]
    return datasets.Dataset.from_list(rows)


def check_tokens(trainer, pairs):
    for row, (prompt, chosen, rejected) in zip(trainer.train_dataset, pairs, strict=True):
        if "prompt_ids" in row:
            assert (row["prompt_ids"], row["chosen_ids"], row["rejected_ids"]) == (prompt, chosen, rejected)
        else:
            assert row["chosen_input_ids"] == prompt + chosen and row["rejected_input_ids"] == prompt + rejected
            assert row["chosen_labels"] == [-100] * len(prompt) + chosen


def load(folder):
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")


def make_model(folder, has_adapters):
    model = load(folder)
    if not has_adapters:
        return model
    torch.manual_seed(4321)
    model = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", r=8, lora_alpha=16, lora_dropout=0.0,
                                             target_modules=["q_proj", "k_proj", "v_proj", "o_proj"]))
    with torch.no_grad():
        for key, p in model.named_parameters():
            if "lora_B" in key:
                p.copy_(torch.randn_like(p) * 0.1)
    return model


def make_other(folder, has_adapters):
    model = load(folder)
    if not has_adapters:
        torch.manual_seed(77)
        with torch.no_grad():
            for p in model.parameters():
                p.add_(torch.randn_like(p) * 0.1)
    return model


def our_name(name):
    return name.removeprefix("base_model.model.").replace(".default.weight", ".weight")


def ours(name, value):
    """Our order of a value: GPT-2's linear layers are (in, out) there."""
    return (value.t() if re.search(r"\.c_\w+\.weight", name) else value).clone().contiguous()


def trained(model):
    return {our_name(key): p for key, p in model.named_parameters() if p.requires_grad and ".ref." not in key}


class Recorder(TrainerCallback):
    """The first step's gradients, and what each step logs."""

    def __init__(self):
        self.gradients, self.steps = {}, []

    def on_pre_optimizer_step(self, args, state, control, model=None, **kwargs):
        if not self.gradients:
            self.gradients = {key: ours(key, p.grad) for key, p in trained(model).items()}

    def on_log(self, args, state, control, logs=None, **kwargs):
        if "loss" in logs:
            self.steps.append([logs[key] for key in FIGURES])


def train(model, lr, other, pairs, case, steps, folder):
    """TRL's training, recorded, and the log-probabilities of its reference; `other`: that reference,
    instead of the model as it is."""
    (trainer_of, config_of), _, batch, arguments = case
    if config_of is DPOConfig:
        arguments = dict(arguments, precompute_ref_log_probs=True, precompute_ref_batch_size=PAIRS)
    config = config_of(
        output_dir=folder, per_device_train_batch_size=batch,
        gradient_accumulation_steps=PAIRS_PER_STEP // batch, max_steps=steps, optim="adamw_torch",
        learning_rate=lr, lr_scheduler_type="constant", weight_decay=0.0, max_grad_norm=0.0,
        train_sampling_strategy="sequential", logging_steps=1, use_cpu=True, bf16=False,
        gradient_checkpointing=False, report_to=[], save_strategy="no", disable_tqdm=True, remove_unused_columns=config_of is DPOConfig,
        **arguments)
    recorder = Recorder()
    references = dict(ref_model=other) if config_of is DPOConfig else {}
    trainer = trainer_of(model=model, args=config, train_dataset=as_texts(pairs),
                         processing_class=make_tokenizer(), callbacks=[recorder], **references)
    trainer.remove_callback(PrinterCallback)
    check_tokens(trainer, pairs)
    trainer.train()
    assert len(recorder.steps) == steps
    log_probs = None
    if config_of is DPOConfig:
        columns = [trainer.train_dataset[f"ref_{which}_logps"] for which in ("chosen", "rejected")]
        log_probs = torch.tensor([list(column) for column in columns]).t().flatten().contiguous()
    return recorder, log_probs


def make_cases(name, rows, source, folder):
    has_adapters, lr, kept = MODELS[name]
    result = {}
    if has_adapters:
        result |= {f"{name}.start.{key}": p.detach().clone()
                   for key, p in trained(make_model(source / name, True)).items()}
    for number, (case_name, case) in enumerate(CASES.items()):
        label, pairs = f"{name}.{case_name}", rows[case[1]]
        other = make_other(source / name, has_adapters) if case[0] is DPO else None
        first, reference = train(make_model(source / name, has_adapters), lr, other, pairs, case, 1, folder)
        all_steps, before = train(make_model(source / name, has_adapters), lr, None, pairs, case, STEPS, folder)
        result[label + ".first"] = torch.tensor(first.steps[0])
        result[label + ".steps"] = torch.tensor(all_steps.steps)
        result |= {f"{label}.grad.{key}": gradient for key, gradient in first.gradients.items()
                   if number == 0 or re.search(kept, key)}
        if case[0] is DPO:
            result |= {name + ".reference": reference, name + ".before": before}
        print(label, *(f"{value:.6f}" for value in first.steps[0]), "|",
              *(f"{step[0]:.6f}" for step in all_steps.steps))
    return result


def main():
    torch.set_num_threads(1)
    datasets.disable_progress_bars()
    target = Path(sys.argv[1])
    pairs = make_pairs(torch.Generator().manual_seed(99))
    rows = {"pairs": pairs, "bare": bare(pairs)}
    result = {f"{key}.{what}": value for key, own in rows.items() for what, value in stored(own).items()}
    with tempfile.TemporaryDirectory() as folder:
        for name in MODELS:
            result |= make_cases(name, rows, target, folder)
    versions = ", ".join(f"{package} {version(package)}" for package in ("torch", "transformers", "trl", "peft"))
    save_file(result, target / "preferences.safetensors", metadata={"versions": versions})


if __name__ == "__main__":
    main()
