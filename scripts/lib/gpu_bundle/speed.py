# SPDX-License-Identifier: Apache-2.0
"""How fast is it? What the GPU gives at best and each kernel beside it; then steps of models, as a share of
what the matrix products alone would take at that best; then the same steps by transformers and peft, if
Python has them, in the same run."""

import csv
import dataclasses
import importlib.util
import json
import os
import pathlib
import sys

from . import tools
from .runner import Failed, Part, Skipped
from .training import Shape, train

STEPS = 8
TINY = Shape("tests/data/parity/llama/config.json", 2, 32)


@dataclasses.dataclass(frozen=True)
class Model:
    name: str
    shape: Shape
    seconds: float  # most of them go into drawing weights
    options: str = ""
    command: str = "finetune_full"
    peer: str = ""  # options of peer.py for the same; none: there is no such thing

    def on(self, device):
        return self.shape if device == "cuda" else TINY


LORA = "--lora_r 16 --lora_dropout 0"
MODELS = [
    Model("llama-1.1b", Shape("recipes/models/tiny-llama.json", 4, 2048), 60, peer="--optimizer adamw"),
    Model("smollm2-135m", Shape("recipes/models/smollm2-135m.json", 4, 256), 30, peer="--optimizer adamw"),
    Model("smollm2-135m-graphs", Shape("recipes/models/smollm2-135m.json", 4, 256), 30, "--cuda_graphs true"),
    Model("llama-7b-lora", Shape("recipes/models/open-llama-7b.json", 2, 2048), 90, LORA, "finetune_lora",
          peer="--optimizer adamw --lora_r 16"),
    Model("qwen2.5-1.5b", Shape("recipes/models/qwen2.5-1.5b.json", 4, 2048), 60, peer="--optimizer adamw"),
    Model("llama-7b-8bit", Shape("recipes/models/open-llama-7b.json", 2, 2048), 100,
          "--optimizer adamw_8bit --activation_checkpointing selective"),
    Model("llama-7b-qlora", Shape("recipes/models/open-llama-7b.json", 2, 2048), 90, f"{LORA} --quantize bnb.nf4",
          "finetune_lora"),
]


def kernels(job):
    """Keeps the best product and copy for the parts that follow."""
    program = job.place.program("device_bench")
    if program is None:
        raise Failed("the bundle has no device_bench")
    milliseconds = 60 if job.place.on_gpu else 5
    try:
        job.command([program, job.place.device, milliseconds], env=job.place.environment())
    finally:  # what it got to counts
        for line in job.output().splitlines():
            if line.startswith("{"):
                measured = json.loads(line)
                job.place.shared[measured["kernel"]] = measured
                job.figure(**measured)


def model_part(model):
    def run(job):
        shape = model.on(job.place.device)
        planned = job.command([job.place.program("snug"), "plan", "--model.config", job.place.source(shape.config),
                               *shape.options(STEPS), "--device", "h100-80" if job.place.on_gpu else "cpu",
                               *model.options.split(), *(["--full", "true"] if model.command == "finetune_full" else []),
                               "--json"], env=job.place.environment(), ok=None)
        trained = train(job, "run", shape, STEPS, *model.options.split(), command=model.command)
        speed, best = trained.record["speed"], job.place.shared.get("product_bf16")
        # run.json counts the first steps too.
        flops = speed["model_flops_per_second"] / speed["tokens_per_second"] * trained.tokens_per_second
        figures = {"tokens_per_second": trained.tokens_per_second, "step_seconds": trained.seconds,
                   "steps": [step["seconds"] for step in trained.record["steps"]],
                   "model_flops_per_second": flops,
                   "startup": trained.record["startup_s"],
                   "allocated": trained.memory("measured", "allocated"),
                   "reserved": trained.memory("measured", "reserved"),
                   "allocated_planned": trained.memory("predicted", "allocated")}
        if planned.code == 0:
            figures["step_seconds_planned"] = json.loads(planned.output[planned.output.find("{"):])["time"]["step_seconds"]
        if best:
            figures["of_best_product"] = flops / (best["operations"] / best["us"] * 1e6)
        job.figure(model=model.name, program="snug", batch=shape.batch, tokens=shape.tokens,
                   options=model.options, **figures)

    return Part(model.name, model.seconds, run)


def peer_part(model):
    def run(job):
        wanted = ["torch", "transformers"] + (["peft"] if "lora" in model.peer else [])
        missing = [name for name in wanted if importlib.util.find_spec(name) is None]
        # Folders that hold torch's libraries alone have no package that could be imported.
        if "torch" not in missing and not (job.place.torch / "__init__.py").exists():
            missing.insert(0, "torch")
        if missing:
            raise Skipped(f"Python has no {', '.join(missing)}")
        shape = model.on(job.place.device)
        script = pathlib.Path(__file__).with_name("peer.py")
        words = [sys.executable, "-B", script, "--config", job.place.source(shape.config), "--batch", shape.batch,
                 "--tokens", shape.tokens, "--steps", STEPS, "--device", job.place.device, *model.peer.split()]
        finished = job.command(words, env={**os.environ, "HF_HUB_OFFLINE": "1"})
        job.figure(model=model.name, **json.loads(finished.output.splitlines()[-1]))

    return Part(f"{model.name}-peer", 70, run)


# What a profiler counts of a kernel: time, shares of the memory's and the processors' best, and how full these are.
COUNTERS = ["gpu__time_duration.sum", "dram__throughput.avg.pct_of_peak_sustained_elapsed",
            "sm__throughput.avg.pct_of_peak_sustained_elapsed", "sm__warps_active.avg.pct_of_peak_sustained_active",
            "launch__registers_per_thread", "launch__occupancy_limit_registers"]


def counters(job):
    """NVIDIA's profiler over each of our kernels once, where it may read the device's counters."""
    profiler = tools.find(job, "ncu", "--csv", "--page", "raw", "--metrics", ",".join(COUNTERS),
                          "--target-processes", "all", "--kernel-name-base", "mangled", "--kernel-name", "regex:snug",
                          "--clock-control", "none")
    finished = job.command(profiler.over([job.place.program("device_bench"), "cuda", 0]), ok=None)  # each once
    rows = csv_rows(finished.output)
    for row in rows:
        job.figure(kernel=row.get("Kernel Name", "")[:160], **{name: row.get(name) for name in COUNTERS})
    if not rows:
        profiler.check_works(finished.output)
        raise Failed(f"ncu gave no figures (it ended with {finished.code})")


def csv_rows(text):
    lines = [line for line in text.splitlines() if line.startswith('"')]
    return list(csv.DictReader(lines))[1:] if lines else []  # the second line has the units


with_peers = [part for model in MODELS for part in ([model_part(model)] + ([peer_part(model)] if model.peer else []))]

PARTS = [Part("kernels", 60, kernels), *with_peers, Part("counters", 80, counters)]
