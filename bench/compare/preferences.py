#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""DPO in snug and in TRL's DPOTrainer, in turns: pairs a second of the steps after the first and peak resident memory, medians.

Rows are random words; both programs get the same ones, the same precision, micro-batch and steps, and compute the reference's
log-probabilities before training. TRL runs without and with gradient checkpointing, which is its default.
Run: preferences.py --model DIR [--snug build/snug] [--python PYTHON-WITH-TRL] [--lora | --full] [--turns 3]
"""
import argparse
import json
import random
import statistics
import sys
import tempfile
from pathlib import Path

import measure

WORDS = "the river bird stone light walks under seven green hills because nobody asked what it means to wait".split()

TRL = """
import json, sys, time, torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import DPOConfig, DPOTrainer
o = json.loads(sys.argv[1])
torch.set_num_threads(o["threads"])
model = AutoModelForCausalLM.from_pretrained(o["model"], dtype=torch.bfloat16)
tokenizer = AutoTokenizer.from_pretrained(o["model"])
peft = None
if o["lora"]:
    from peft import LoraConfig
    peft = LoraConfig(r=8, lora_alpha=16, lora_dropout=0, task_type="CAUSAL_LM", target_modules=["q_proj", "v_proj"])
config = DPOConfig(output_dir=o["out"], per_device_train_batch_size=o["batch"], max_steps=o["steps"], learning_rate=1e-6,
                   precompute_ref_log_probs=True, precompute_ref_batch_size=o["batch"], gradient_checkpointing=o["checkpointing"],
                   max_length=None, report_to=[], logging_steps=1, use_cpu=True, bf16=False, save_strategy="no", disable_tqdm=True)
class Clock(TrainerCallback):
    times = []
    def on_step_end(self, *args, **more):
        self.times.append(time.perf_counter())
rows = [json.loads(line) for line in open(o["rows"])]
trainer = DPOTrainer(model=model, args=config, train_dataset=Dataset.from_list(rows), processing_class=tokenizer,
                     peft_config=peft, callbacks=[Clock()])
trainer.train()
print("RESULT", json.dumps([b - a for a, b in zip(Clock.times, Clock.times[1:])]))
"""


def write_rows(path, pairs, prompt, answer):
    r = random.Random(1)
    with open(path, "w", encoding="utf-8") as file:
        for _ in range(pairs):
            words = [" ".join(r.choice(WORDS) for _ in range(count)) for count in (prompt, answer, answer)]
            file.write(json.dumps({"prompt": words[0], "chosen": " " + words[1], "rejected": " " + words[2]}) + "\n")


def run_snug(args, rows, out):
    command = [args.snug, "finetune_lora" if args.lora else "finetune_full", args.model, "--data", str(rows), "--objective", "dpo",
               "--precision", "bf16-true", "--train.micro_batch_size", str(args.batch), "--train.global_batch_size", str(args.batch),
               "--train.max_steps", str(args.steps), "--data.val_split_fraction", "0", "--eval.num_samples", "0", "--train.save_model",
               "false", "--out_dir", str(out), "--num_threads", str(args.threads), "--lr", "1e-6", "--train.lr_warmup_steps", "0"]
    if args.lora:
        command += ["--lora_r", "8", "--lora_alpha", "16", "--lora_dropout", "0"]
    result = measure.run(command, 3600)
    steps = json.loads((out / "run.json").read_text())["steps"]
    return [step["seconds"] for step in steps[1:]], result["peak_rss_bytes"]


def run_trl(args, rows, out, checkpointing):
    options = {"model": args.model, "rows": str(rows), "out": str(out), "batch": args.batch, "steps": args.steps, "lora": args.lora,
               "threads": args.threads, "checkpointing": checkpointing}
    result = measure.run([args.python, "-c", TRL, json.dumps(options)], 3600)
    line = next(line for line in result["output"].splitlines() if line.startswith("RESULT "))
    return json.loads(line[len("RESULT "):]), result["peak_rss_bytes"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="Hugging Face directory")
    parser.add_argument("--snug", default="build/snug")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--lora", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--batch", type=int, default=4, help="pairs of a step")
    parser.add_argument("--prompt", type=int, default=64, help="words of a prompt")
    parser.add_argument("--answer", type=int, default=64, help="words of an answer")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    programs = {"snug": lambda rows, out: run_snug(args, rows, out),
                "TRL": lambda rows, out: run_trl(args, rows, out, False),
                "TRL, checkpointing": lambda rows, out: run_trl(args, rows, out, True)}
    rates, peaks = {name: [] for name in programs}, {name: [] for name in programs}
    with tempfile.TemporaryDirectory() as place:
        rows = Path(place) / "pairs.jsonl"
        write_rows(rows, args.batch * args.steps, args.prompt, args.answer)
        for turn in range(args.turns):
            for name, run in programs.items():
                seconds, peak = run(rows, Path(place) / f"{name}-{turn}")
                rates[name].append(args.batch / statistics.median(seconds))
                peaks[name].append(peak)
                print(f"turn {turn + 1}, {name}: {rates[name][-1]:.3f} pairs/s, {peak / 2**20:.0f} MiB", flush=True)
    own_rate, own_peak = statistics.median(rates["snug"]), statistics.median(peaks["snug"])
    for name in programs:
        rate, peak = statistics.median(rates[name]), statistics.median(peaks[name])
        print(f"{name}: {rate:.3f} pairs/s, {peak / 2**20:.0f} MiB; snug {own_rate / rate:.2f} times as fast, {own_peak / peak:.2f} of the memory")


if __name__ == "__main__":
    main()
