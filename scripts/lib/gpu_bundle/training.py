# SPDX-License-Identifier: Apache-2.0
"""One run of `snug finetune` on made-up data, and what its run.json says. Weights are random, so that no
checkpoint need travel: they are drawn by seed and name, the same on every device."""

import dataclasses
import json
import math
import statistics

from .runner import Failed


@dataclasses.dataclass(frozen=True)
class Shape:
    """A model and a micro-batch."""

    config: str  # below source/
    batch: int
    tokens: int
    precision: str = "bf16-true"

    def options(self, steps):
        return ["--data", "Synthetic", "--train.max_seq_length", self.tokens,
                "--train.micro_batch_size", self.batch, "--train.global_batch_size", self.batch,
                "--train.max_steps", steps, "--train.epochs", 1000, "--train.lr_warmup_steps", 0,
                "--train.save_model", "false", "--precision", self.precision]


@dataclasses.dataclass(frozen=True)
class Run:
    code: int
    record: dict
    output: str

    @property
    def losses(self):
        return [step["loss"] for step in self.record["steps"]]

    @property
    def seconds(self):
        """Of a step, the first two left out, which set libraries up."""
        steps = [step["seconds"] for step in self.record["steps"]]
        return statistics.median(steps[2:] or steps[-1:])

    @property
    def tokens_per_second(self):
        steps = self.record["steps"]
        return steps[-1]["tokens"] / self.seconds

    def memory(self, kind, what):
        """predicted or measured, allocated or reserved; None where the run was not planned."""
        peaks = self.record["memory"][kind]
        return peaks and peaks[f"peak_{what}"]


def options_of(job, shape, steps, command="finetune_full", device=None):
    """The words of a run but for its own options and its folder."""
    program = job.place.program("snug")
    return [program, command, "--model.config", job.place.source(shape.config), *shape.options(steps),
            "--accelerator", device or job.place.device]


def train(job, name, shape, steps, *options, command="finetune_full", device=None, ok=(0,), env=None,
          seconds=None, stop=None):
    folder = job.folder / name
    words = [*options_of(job, shape, steps, command, device), "--out_dir", folder, *options]
    finished = job.command(words, seconds=seconds, env=env or job.place.environment(), ok=ok, stop=stop)
    return Run(finished.code, read_record(folder), finished.output)


def read_record(folder):
    path = folder / "run.json"
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise Failed(f"no run.json that could be read: {error}")


def largest_difference(expected, got):
    """Of losses, relative to the expected ones; infinite where one is missing or no number."""
    if len(expected) != len(got) or not expected:
        return math.inf
    worst = 0.0
    for one, other in zip(expected, got):
        if one is None or other is None:
            return math.inf
        worst = max(worst, abs(one - other) / max(abs(one), 1e-30))
    return worst
