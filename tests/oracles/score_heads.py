#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Expected values for tests/parity/score_parity_test.cpp from transformers, peft and TRL: heads that
score whole documents, on the small models that llama_parity.py and model_parity.py made, in float32.
Of three models all weights train, of two peft's low-rank adapters and the head.

Run after those: python3 score_heads.py ../data
                 (torch 2.11, transformers 5.24, trl 1.16, peft 0.21, datasets 5, safetensors)
Writes parity/score_heads.safetensors:
  input_ids (8, T)             documents, -1 behind a row's last token; two of them end with the token
                               that fills batches up, which is not scored
  labels (8)
  margins (4)                  of pairs: documents 0 and 1, 2 and 3, …
  <model>.start.<parameter>    of adapters (B is not zero, so that A has a gradient)
  <model>.<case>.score (L, D)  the head: L labels, or 1 for rewards
  <model>.<case>.scores (8, L) of the documents, all in one padded batch
  <model>.<case>.first         loss and figures of the first step
  <model>.<case>.grad.<parameter>
  <model>.<case>.steps (10, …) the same of ten AdamW steps, of half of the documents each
  classes.model, classes.adapter (8, 3)   scores by what is in these folders
and classes/model, a directory as transformers writes it, and classes/adapter, as peft does.
"""
import os
import re
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

os.environ.update(HF_HUB_OFFLINE="1", HF_HUB_DISABLE_TELEMETRY="1", TQDM_DISABLE="1", CUDA_VISIBLE_DEVICES="")

import datasets  # noqa: E402
import torch  # noqa: E402
from peft import LoraConfig, get_peft_model  # noqa: E402
from safetensors.torch import save_file  # noqa: E402
from transformers import AutoModelForSequenceClassification, PrinterCallback  # noqa: E402
from trl import RewardConfig, RewardTrainer  # noqa: E402

from preferences import PAD, VOCABULARY, Recorder, make_tokenizer, our_name, ours  # noqa: E402

# name: (whether adapters train, learning rate, what of the gradients is kept)
MODELS = {
    "llama": (False, 2e-3, r"."),
    "gpt2": (False, 2e-3, r"ln_|0\.attn\.|wte|1\.mlp\.c_proj\.bias|score"),
    "gpt-neox": (False, 2e-3, r"norm|0\.attention|embed_in|score"),
    "opt": (False, 2e-3, r"norm|0\.self_attn\.q|embed|score"),
    "qwen3": (True, 1e-2, r"."),
    "gemma2": (True, 1e-2, r"lora_A|score"),
}
NAMES = ["low", "middle", "high"]
DOCUMENTS, STEPS = 8, 10
LABELS = [2, 0, 1, 1, 0, 2, 2, 0]
MARGINS = [0.5, 0.0, -0.25, 1.0]
CENTER = 0.05


def make_documents(generator):
    def draw(length):
        return torch.randint(3, VOCABULARY, (length,), generator=generator).tolist()
    documents = [draw(length) for length in (7, 12, 1, 5, 16, 3, 9, 8)]
    documents[3][-2:] = [PAD, PAD]
    documents[6][-1] = PAD
    return documents


def padded(documents, fill):
    rows = torch.full((len(documents), max(map(len, documents))), fill)
    for row, document in zip(rows, documents):
        row[:len(document)] = torch.tensor(document)
    return rows


def load(folder, labels, seed):
    model = AutoModelForSequenceClassification.from_pretrained(
        folder, num_labels=labels, dtype=torch.float32, attn_implementation="eager", pad_token_id=PAD)
    with torch.no_grad():
        generator = torch.Generator().manual_seed(seed)
        model.score.weight.copy_(torch.randn(model.score.weight.shape, generator=generator) * 0.2)
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        if isinstance(getattr(module, "dropout", None), float):  # as OPT keeps it
            module.dropout = 0.0
    return model


def adapted(model):
    torch.manual_seed(4321)
    model = get_peft_model(model, LoraConfig(task_type="SEQ_CLS", r=8, lora_alpha=16, lora_dropout=0.0,
                                             target_modules=["q_proj", "k_proj", "v_proj", "o_proj"]))
    with torch.no_grad():
        for key, p in model.named_parameters():
            if "lora_B" in key:
                p.copy_(torch.randn_like(p) * 0.1)
    return model


def make_model(source, name, labels):
    model = load(source / name, labels, seed=5 + labels)
    return adapted(model) if MODELS[name][0] else model


def name_of(key):
    return our_name(key).replace(".modules_to_save", "")


def trained(model):
    return {name_of(key): p for key, p in model.named_parameters() if p.requires_grad}


def score(model):
    return next(p for key, p in trained(model).items() if key == "score.weight")


def inputs(documents):
    ids = padded(documents, PAD)
    mask = torch.zeros_like(ids)
    for row, document in zip(mask, documents):
        row[:len(document)] = 1
    return {"input_ids": ids, "attention_mask": mask}


def classification(source, name, documents, labels):
    """Steps of AdamW over halves of the documents, after a first loss over all of them."""
    _, lr, _ = MODELS[name]
    model = make_model(source, name, len(NAMES)).train()
    result = {"score": score(model).detach().clone()}
    out = model(**inputs(documents), labels=labels)
    right = (out.logits.argmax(-1) == labels).float().mean()
    result |= {"scores": out.logits.detach(), "first": torch.stack([out.loss.detach(), right])}
    out.loss.backward()
    gradients = {key: ours(key, p.grad) for key, p in trained(model).items()}
    model.zero_grad()
    optimizer = torch.optim.AdamW(trained(model).values(), lr=lr, weight_decay=0.0)
    steps = []
    for step in range(STEPS):
        half = slice(step % 2 * 4, step % 2 * 4 + 4)
        out = model(**inputs(documents[half]), labels=labels[half])
        right = (out.logits.argmax(-1) == labels[half]).float().mean()
        steps.append(torch.stack([out.loss.detach(), right]))
        out.loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    result["steps"] = torch.stack(steps)
    return result, gradients


class RewardRecorder(Recorder):
    def on_pre_optimizer_step(self, args, state, control, model=None, **kwargs):
        if not self.gradients:
            self.gradients = {key: ours(key, p.grad) for key, p in trained(model).items()}

    def on_log(self, args, state, control, logs=None, **kwargs):
        if "loss" in logs:
            self.steps.append([logs[key] for key in ("loss", "mean_reward", "accuracy", "margin")])


def reward(source, name, documents, folder, pairs_per_step, steps):
    _, lr, _ = MODELS[name]
    model = make_model(source, name, 1)
    result = {"score": score(model).detach().clone()}
    with torch.no_grad():
        result["scores"] = model.eval()(**inputs(documents)).logits
    rows = [{"chosen_ids": documents[2 * i], "rejected_ids": documents[2 * i + 1], "margin": MARGINS[i]}
            for i in range(len(MARGINS))]
    config = RewardConfig(
        output_dir=folder, per_device_train_batch_size=pairs_per_step, max_steps=steps, optim="adamw_torch",
        learning_rate=lr, lr_scheduler_type="constant", weight_decay=0.0, max_grad_norm=0.0,
        train_sampling_strategy="sequential", logging_steps=1, use_cpu=True, bf16=False,
        gradient_checkpointing=False, report_to=[], save_strategy="no", disable_tqdm=True,
        center_rewards_coefficient=CENTER, max_length=None)
    recorder = RewardRecorder()
    trainer = RewardTrainer(model=model, args=config, train_dataset=datasets.Dataset.from_list(rows),
                            processing_class=make_tokenizer(), callbacks=[recorder])
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    assert len(recorder.steps) == steps
    return result, recorder


def make_cases(name, source, documents, labels, folder):
    has_adapters, _, kept = MODELS[name]
    result = {}
    if has_adapters:
        start = trained(make_model(source, name, 1))
        result |= {f"{name}.start.{key}": p.detach().clone() for key, p in start.items() if "lora" in key}

    def keep(case, own, gradients, pattern):
        result.update({f"{name}.{case}.{key}": value for key, value in own.items()})
        result.update({f"{name}.{case}.grad.{key}": gradient for key, gradient in gradients.items()
                       if re.search(pattern, key)})
        print(name, case, own["first"].tolist(), "|", *(f"{step[0]:.6f}" for step in own["steps"]))

    own, gradients = classification(source, name, documents, labels)
    keep("classification", own, gradients, kept)
    own, first = reward(source, name, documents, folder, len(MARGINS), 1)
    own["first"] = torch.tensor(first.steps[0])
    own["steps"] = torch.tensor(reward(source, name, documents, folder, 2, STEPS)[1].steps)
    keep("reward", own, first.gradients, r"score|norm|ln_|0\..*lora")
    return result


def write_folders(target, documents):
    """A classifier as transformers writes it, and an adapter as peft does."""
    model = load(target / "parity/llama", len(NAMES), seed=8).eval()
    model.config.id2label = dict(enumerate(NAMES))
    model.config.label2id = {name: i for i, name in enumerate(NAMES)}
    model.save_pretrained(target / "classes/model")
    adapter = adapted(load(target / "parity/qwen3", len(NAMES), seed=8)).eval()
    adapter.save_pretrained(target / "classes/adapter")
    (target / "classes/adapter/README.md").unlink()
    with torch.no_grad():
        return {"classes.model": model(**inputs(documents)).logits,
                "classes.adapter": adapter(**inputs(documents)).logits}


def main():
    torch.set_num_threads(1)
    datasets.disable_progress_bars()
    target = Path(sys.argv[1])
    documents, labels = make_documents(torch.Generator().manual_seed(12)), torch.tensor(LABELS)
    result = {"input_ids": padded(documents, -1).int(), "labels": labels.int(),
              "margins": torch.tensor(MARGINS)}
    with tempfile.TemporaryDirectory() as folder:
        for name in MODELS:
            result |= make_cases(name, target / "parity", documents, labels, folder)
    result |= write_folders(target, documents)
    result = {key: value.contiguous() for key, value in result.items()}
    versions = ", ".join(f"{package} {version(package)}" for package in ("torch", "transformers", "trl", "peft"))
    save_file(result, target / "parity/score_heads.safetensors", metadata={"versions": versions})


if __name__ == "__main__":
    main()
