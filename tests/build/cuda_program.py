#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""cuda_program.py BUILD_FOLDER SOURCE_FOLDER: build/cuda/snug, linked against libtorch with CUDA, on a machine that has
no GPU and no driver. Every library and symbol it names is there; it says its version and help, and in one line of
`snug doctor` why it has no GPU; it plans for GPUs what the program without CUDA plans, to the byte; and on the CPU it
trains with the same losses. Faults are printed, and the exit status is 1."""
import difflib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

# What only NVIDIA's driver brings. Nothing that the program loads when it starts has to name one of them.
OF_THE_DRIVER = {"libcuda.so.1", "libnvidia-ml.so.1"}

FULL = "--precision bf16-true --train.micro_batch_size 4 --train.global_batch_size 16 --train.max_seq_length 512"
PLANS = [
    f"--model.config MODELS/open-llama-7b.json {FULL} --device a100-80",
    f"--model.config MODELS/open-llama-7b.json {FULL} --device rtx-4090 --optimizer adamw_8bit"
    " --optimizer_in_backward auto --activation_checkpointing selective --weight_streaming --optimizer_offload cpu",
    f"--model.config MODELS/tiny-llama.json {FULL} --device rtx-4090 --lora_r 16 --quantize bnb.nf4-dq",
    f"--model.config MODELS/gpt2.json {FULL} --device a100-40 --optimizer adafactor --precision 16-mixed",
    "--model.config MODELS/tiny-blip2.json --device a100-40 --precision bf16-true --train.micro_batch_size 8"
    " --train.global_batch_size 8",
]


class Test:
    def __init__(self, build, source):
        self.build, self.source, self.faults = build, source, []
        self.cpu, self.cuda = build / "snug", build / "cuda" / "snug"

    def fault(self, text):
        self.faults.append(text)

    def run(self, program, words, wanted=0):
        # As on a machine without a GPU, on those that have one too.
        environment = dict(os.environ, CUDA_VISIBLE_DEVICES="")
        done = subprocess.run(
            [program, *words], capture_output=True, text=True, timeout=300, env=environment, stdin=subprocess.DEVNULL
        )
        if done.returncode != wanted:
            self.fault(f"{program} {' '.join(map(str, words))}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout + done.stderr

    def both(self, words, wanted=0):
        return self.run(self.cpu, words, wanted), self.run(self.cuda, words, wanted)

    def expect_equal(self, what, cpu, cuda):
        if cpu != cuda:
            lines = difflib.unified_diff(cpu.splitlines(), cuda.splitlines(), "without CUDA", "with CUDA", lineterm="")
            self.fault(f"{what} differs:\n" + "\n".join(list(lines)[:40]))

    def libraries(self):
        said = subprocess.run(["ldd", "-r", self.cuda], capture_output=True, text=True, check=False)
        text = said.stdout + said.stderr
        for name in ("libtorch_cuda.so", "libcudart.so.13", "libcublas.so.13", "libnccl.so.2"):
            if f"{name} => /" not in text:
                self.fault(f"ldd -r: {name} is not loaded")
        for line in text.splitlines():
            missing = re.match(r"\s*(\S+) => not found", line)
            if missing and missing[1] not in OF_THE_DRIVER or re.search("undefined symbol|symbol lookup", line):
                self.fault(f"ldd -r: {line.strip()}")
        torch = {line.split("=> ")[1].rsplit("/", 1)[0] for line in text.splitlines() if re.match(r"\s*lib(torch|c10)", line)}
        if len(torch) != 1:
            self.fault(f"ldd -r: libtorch's libraries come from different folders: {', '.join(sorted(torch))}")

    def words(self):
        for words in (["version"], ["--help"], ["finetune", "--help"]):
            texts = [text.replace("without CUDA", "with CUDA") for text in self.both(words)]
            self.expect_equal(f"snug {' '.join(words)}", *texts)

    def doctor(self):
        text = self.run(self.cuda, ["doctor"])
        if ", with CUDA;" not in text:
            self.fault(f"doctor does not say that this program has CUDA:\n{text}")
        reasons = re.findall(r"CUDA +13\.\d+, no GPU: (.+)$", text, re.M)
        if reasons not in (["there is no NVIDIA driver here"], ["the NVIDIA driver reports none"]):
            self.fault(f"doctor does not say in one line why there is no GPU:\n{text}")
        self.no_gpu(reasons[0] if reasons else "")

    def no_gpu(self, reason):
        words = ["finetune", self.tiny(), *self.recipe("none"), "--accelerator", "cuda"]
        text = self.run(self.cuda, words, wanted=2)
        if reason not in text:
            self.fault(f"--accelerator cuda does not say {reason!r}:\n{text}")

    def plans(self):
        models = str(self.source / "recipes" / "models")
        for plan in PLANS:
            words = ["plan", *plan.replace("MODELS", models).split(), "--json"]
            self.expect_equal(f"snug {' '.join(words)}", *self.both(words))

    def tiny(self):
        return str(self.source / "tests" / "data" / "system" / "tiny")

    def recipe(self, out):
        rows = self.folder / "rows.jsonl"
        rows.write_text("".join(json.dumps({"instruction": f"say {i % 7}", "output": "abc" * (1 + i % 3)}) + "\n" for i in range(32)))
        return (
            f"--model.config {self.tiny()}/config.json --data JSON --data.json_path {rows} --data.prompt_style plain"
            f" --out_dir {self.folder / out} --train.global_batch_size 8 --train.micro_batch_size 4 --train.max_steps 3"
            " --train.epochs 1 --eval.num_samples 0"
        ).split()

    # Left to itself the program takes the CPU.
    def training(self):
        for technique in ("--precision 32-true", "--precision bf16-true --optimizer adamw_8bit --optimizer_offload cpu"):
            losses = []
            for program, out in ((self.cpu, "cpu"), (self.cuda, "cuda")):
                self.run(program, ["finetune_full", self.tiny(), *self.recipe(out), *technique.split()])
                record = self.folder / out / "run.json"
                steps = json.loads(record.read_text())["steps"] if record.exists() else []
                losses.append([step["loss"] for step in steps])
            if len(losses[0]) != 3 or losses[0] != losses[1]:
                self.fault(f"losses with {technique} differ: {losses[0]} without CUDA, {losses[1]} with it")

    def all(self):
        with tempfile.TemporaryDirectory() as folder:
            self.folder = pathlib.Path(folder)
            for part in (self.libraries, self.words, self.doctor, self.plans, self.training):
                part()
        return self.faults


def main():
    faults = Test(*(pathlib.Path(word).resolve() for word in sys.argv[1:])).all()
    print("\n".join(faults) if faults else "the program with CUDA does without a GPU what the one without CUDA does")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
